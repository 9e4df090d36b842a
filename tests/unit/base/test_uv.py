import os
from pathlib import Path

import pytest

from gpuinstall.base import process, uv


def test_user_settings_do_not_change_installed_packages():
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
        "UV_LINK_MODE",
        "UV_NO_CONFIG",
        "UV_PREVIEW_FEATURES",
        "UV_PYTHON_DOWNLOADS",
    }
    assert environment["PATH"] == "/bin"


def test_offline_option_is_passed_to_uv():
    assert uv.environment({}, {}, offline=True)["UV_OFFLINE"] == "1"
    assert "UV_OFFLINE" not in uv.environment({}, {})


def test_uv_is_asked_once_for_its_default_index(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = uv.default_index(uv.environment(os.environ, {}))
    # The next command has other variables, and runs no uv.
    monkeypatch.setattr(process, "run", None)

    assert first
    assert uv.default_index({"PATH": "/bin"}) == first


def test_commands_contain_full_paths_and_no_credentials():
    python = Path("/usr/bin/python3.12")
    commands = [
        uv.venv_command(python, Path("/x/staging")),
        uv.pip_command("install", Path("/x/staging/bin/python"), "--no-deps"),
        uv.compile_lock(python, "3.12", "x86_64-manylinux_2_28", wheels_only=()),
    ]
    for command in commands:
        assert command[0] == str(uv.uv())
        assert Path(command[command.index("--python") + 1]).is_absolute()
        assert not any("://" in word for word in command)


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_loopback_is_added_to_hosts_without_a_proxy(name):
    given = uv.bypass_proxy({name: "corp.example"})
    assert given["NO_PROXY"] == given["no_proxy"] == "corp.example,127.0.0.1"
    assert uv.bypass_proxy({})["NO_PROXY"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("UV_CACHE_DIR", "/a b/cache"),
        ("UV_CACHE_DIR", "relative"),
        ("UV_CACHE_DIR", None),
        ("XDG_CACHE_HOME", "/a/cache"),
        ("XDG_CACHE_HOME", "relative"),
        ("HOME", "/a/home"),
    ],
)
def test_cache_is_the_one_of_uv(tmp_path, monkeypatch, variable, value):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    if value:
        monkeypatch.setenv(variable, value)
    done = process.run([uv.uv(), "cache", "dir"], env={**os.environ})
    assert str(uv.find_cache(os.environ)) == done.out.strip()
