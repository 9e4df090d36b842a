"""``gpuinstall hook`` and the user's configuration files."""

import json
import os
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest
import tomli

from gpuinstall.base.text import remove_block
from gpuinstall.cli.hook import _insert_values
from gpuinstall.cli.main import run_command_line


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Create a user's settings and a project folder."""
    for name in os.environ:
        if name.startswith(("GPUINSTALL_", "PIP_", "UV_", "VIRTUAL_ENV")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("UV_OFFLINE", "1")
    (tmp_path / "settings" / "pip").mkdir(parents=True)
    (tmp_path / "settings" / "uv").mkdir()
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "settings"


@pytest.fixture
def hook(home, capsys):  # noqa: ARG001  its settings
    """Return a function that runs ``hook`` and returns its errors."""

    def run(line, expected=0):
        capsys.readouterr()
        assert run_command_line(["hook", *line.split(), "--json"]) == expected
        return json.loads(capsys.readouterr().out)["errors"]

    return run


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pip/pip.conf", b"[global]\r\ntimeout = 20\r\n"),
        ("pip/pip.conf", b"[global]\r\ntimeout = 20"),
        ("pip/pip.conf", b"[install]\nprefer-binary = true\n"),
        ("uv/uv.toml", b"native-tls = false\r\n[pip]\r\nno-deps = true"),
        ("uv/uv.toml", b'constraint-dependencies = ["six<2"]\n'),
    ],
)
def test_removing_hook_restores_the_configuration_file(home, hook, name, text):
    file, tool = home / name, name.partition("/")[0]
    file.write_bytes(text)
    file.chmod(0o600)
    hook(tool)
    assert b"# gpuinstall hook: " in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    hook(f"{tool} --remove")
    assert file.read_bytes() == text
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


@pytest.mark.usefixtures("home")
def test_hook_warns_if_pytorch_index_is_unreachable(monkeypatch, capsys):
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert run_command_line(["hook", "uv"]) == 0
    assert "download.pytorch.org cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "native-tls = false\n",
        "[pip]\nno-deps = true\n",
        "[pip]\nno-deps = true\n\nfind-links = [\n  'own',\n]\n",
        "pip.find-links = ['own']\n",
        "[[index]]\nurl = 'https://a.example'\n[pip]  # mine\nfind-links = []",
    ],
)
def test_hook_mirror_precedes_existing_find_links(text):
    before = tomli.loads(text)
    hooked = _insert_values(text, "pip.find-links", ["https://mirror.example"])
    assert remove_block(hooked) == text
    links = before.get("pip", {}).get("find-links", [])
    before.setdefault("pip", {})["find-links"] = ["https://mirror.example", *links]
    assert tomli.loads(hooked) == before


@pytest.mark.usefixtures("home")
def test_variable_disabling_pip_configuration_is_reported(monkeypatch, capsys):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert run_command_line(["hook", "pip"]) == 0
    assert "PIP_CONFIG_FILE is set; pip uses" in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"timeout = 20\n", b"\xef\xbb\xbf[global]\n"])
def test_malformed_pip_configuration_is_reported(home, hook, text):
    file = home / "pip" / "pip.conf"
    file.write_bytes(text)
    [error] = hook("pip", 2)
    assert error["code"] == "malformed-configuration"
    assert file.read_bytes() == text


@pytest.mark.parametrize("section", ["global", "install"])
def test_hook_keeps_existing_pip_constraint_file(home, hook, section, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", str(home))
    text = f"[{section}]\nconstraint = /srv/mine.txt\n"
    (home / "pip.conf").write_text(text, "utf-8")
    hook("pip")
    own = (home / "pip" / "gpuinstall-constraints.txt").as_uri()
    text = (home / "pip" / "pip.conf").read_text("utf-8")
    assert f"constraint = /srv/mine.txt {own}\n" in text


def test_user_constraints_file_is_kept(home, hook):
    file = home / "pip" / "gpuinstall-constraints.txt"
    file.write_text("six==1.0\n", "utf-8")
    [error] = hook("pip", 2)
    assert error["code"] == "hook-taken"
    assert not (home / "pip" / "pip.conf").exists()


def without_a_mark(file):
    text = file.read_text("utf-8")
    file.write_text(text.replace("# end of gpuinstall hook", "# "), "utf-8")


def without_comments(file):
    """Rewrite a file as `pip config set` does, without comments."""
    parser = RawConfigParser()
    parser.read(file)
    with file.open("w") as rewritten:
        parser.write(rewritten)


@pytest.mark.parametrize(
    ("name", "change", "hint"),
    [
        ("uv/uv.toml", without_a_mark, "Delete the hook's lines"),
        ("pip/pip.conf", without_comments, "pip config --user unset install.constr"),
    ],
)
def test_edited_hook_lines_are_not_replaced(home, hook, name, change, hint):
    file, tool = home / name, name.partition("/")[0]
    hook(tool)
    change(file)
    changed = file.read_bytes()
    for line in (tool, f"{tool} --remove"):
        [error] = hook(line, 2)
        assert error["code"] == "hook-changed"
        assert hint in error["hint"]
    assert file.read_bytes() == changed


@pytest.mark.parametrize("text", [None, "[global]\ntimeout = 20\n"])
def test_hook_keeps_credentials_in_private_file(home, hook, text):
    earlier = home.parent / ".pip" / "pip.conf"
    earlier.parent.mkdir()
    earlier.write_text("[global]\nfind-links = https://me:token@index.example/wheels\n")
    earlier.chmod(0o600)
    file = home / "pip" / "pip.conf"
    if text:
        file.write_text(text)
        file.chmod(0o644)
    hook("pip")
    assert "me:token@" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["pip.conf", ""])
def test_relative_pip_configuration_is_hooked(home, hook, monkeypatch, name):
    monkeypatch.setenv("PIP_CONFIG_FILE", name)
    file = Path(name).absolute() if name else home / "pip" / "pip.conf"
    hook("pip")
    assert file.with_name("gpuinstall-constraints.txt").as_uri() in file.read_text()
    hook("pip --remove")
    assert not file.exists()


def test_pip_configuration_is_read_once(home):
    (home / "pip" / "pip.conf").write_text("[global]\ntimeout = 9\n")
    Path("listed.txt").write_text("six\n")
    opened = []

    def listen(event, arguments):
        if event == "open" and str(arguments[0]).endswith("pip.conf"):
            opened.append(arguments[0])

    sys.addaudithook(listen)
    run_command_line(["plan", "--backend", "cpu", "-r", "listed.txt"])
    of_settings = [path for path in opened if Path(path) == home / "pip" / "pip.conf"]
    assert len(of_settings) == 1
