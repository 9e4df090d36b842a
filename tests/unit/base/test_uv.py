from pathlib import Path

from gpuinstall.base import uv


def test_nothing_of_the_users_configuration_changes_what_is_installed():
    given = {
        "PATH": "/bin",
        "UV_INDEX": "https://extra.example/simple",
        "UV_INDEX_URL": "https://old.example/simple",
        "UV_EXTRA_INDEX_URL": "https://extra.example/simple",
        "UV_TORCH_BACKEND": "auto",
        "UV_CONSTRAINT": "constraints.txt",
        "UV_CACHE_DIR": "/cache",
        "UV_HTTP_TIMEOUT": "60",
        "UV_INDEX_PRIVATE_PASSWORD": "secret",
        "UV_LINK_MODE": "copy",
    }
    environment = uv.environment(
        given, {"UV_DEFAULT_INDEX": "https://index.example/simple"}
    )
    kept = {name for name in environment if name.startswith("UV_")}
    assert kept == {
        "UV_CACHE_DIR",
        "UV_DEFAULT_INDEX",
        "UV_HTTP_TIMEOUT",
        "UV_INDEX_PRIVATE_PASSWORD",
        "UV_LINK_MODE",
        "UV_NO_CONFIG",
        "UV_PREVIEW_FEATURES",
        "UV_PYTHON_DOWNLOADS",
    }
    assert environment["PATH"] == "/bin"


def test_offline_is_handed_on():
    assert uv.environment({}, {}, offline=True)["UV_OFFLINE"] == "1"
    assert "UV_OFFLINE" not in uv.environment({}, {})


def test_interpreters_are_named_by_their_full_path_and_credentials_are_in_no_command():
    python = Path("/usr/bin/python3.12")
    commands = [
        uv.create(python, Path("/x/staging")),
        uv.add(
            Path("/x/staging/bin/python"),
            Path("/x/pylock.private.toml"),
            Path("/x/uv.toml"),
        ),
        uv.compile_lock(python, "3.12", "x86_64-manylinux_2_28"),
    ]
    for command in commands:
        assert command[0] == str(uv.uv())
        assert Path(command[command.index("--python") + 1]).is_absolute()
        assert not any("://" in word for word in command)
