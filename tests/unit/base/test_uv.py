import os
import sys
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


def test_loopback_is_added_to_hosts_without_a_proxy():
    given = uv.bypass_proxy({"no_proxy": "corp.example"})
    assert given["no_proxy"] == "corp.example,127.0.0.1"
    assert uv.bypass_proxy({})["no_proxy"] == "127.0.0.1"


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


BROKEN = "index-url = ["
PYTHON = Path(sys.executable)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder below a ``uv.toml`` that uv cannot parse."""
    (tmp_path / "uv.toml").write_text(BROKEN, "utf-8")
    work = tmp_path / "work"
    (work / "family").mkdir(parents=True)
    for name in ("uv.toml", "constraints.txt", "requirements.in"):
        (work / name).write_text("", "utf-8")
    monkeypatch.chdir(work)
    monkeypatch.setenv("UV_CACHE_DIR", str(work / "cache"))
    return work


def run_uv(folder, command, variables):
    return process.run(command, env={**variables, "UV_OFFLINE": "1"}, cwd=folder)


@pytest.mark.parametrize(
    "command",
    [
        uv.venv_command(PYTHON, Path("environment")),
        uv.pip_command("compile", PYTHON, "--quiet", "requirements.in"),
        uv.pip_command("install", PYTHON, "--dry-run", "packaging"),
        uv.pip_command("sync", PYTHON, "--dry-run", "--allow-empty-requirements", "-"),
        [str(uv.uv()), "cache", "clean", "thing"],
        [str(uv.uv()), "cache", "dir"],
        [str(uv.uv()), "python", "install", "--no-bin", "3.99"],
    ],
    ids=lambda command: " ".join(command[1:3]),
)
def test_settings_of_parent_folder_are_not_read(folder, command):
    (folder / "uv.toml").unlink()
    plain = run_uv(folder, command, os.environ)
    done = run_uv(folder, command, uv.environment(os.environ, {}))

    assert BROKEN in plain.err
    assert BROKEN not in done.err
    assert done.ok or "No download found" in done.err


def test_resolution_reads_only_its_own_settings(folder):
    command = uv.compile_lock(PYTHON, "3.12", "x86_64-manylinux_2_28", ())
    done = run_uv(folder, [*command, "requirements.in"], uv.environment(os.environ, {}))

    assert done.ok, done.err
    setting = 'index-url = "https://index.example/"'
    assert uv.find_settings_fault(setting, "[project]\nname = 'a'\nversion = '1'") == ""
