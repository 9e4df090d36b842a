"""``gpuinstall hook`` and the user's configuration files."""

import json
import os
import sys
from pathlib import Path

import pytest
import tomli

from gpuinstall.base.text import remove_block
from gpuinstall.cli.hook import _insert_values
from gpuinstall.cli.main import run_command_line
from gpuinstall.sources.configuration import PIP_NAME


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Create a user's settings and a project folder."""
    for name in os.environ:
        if name.startswith(("GPUINSTALL_", "PIP_", "UV_", "VIRTUAL_ENV")):
            monkeypatch.delenv(name)
    for name in ("XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "settings"))
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


@pytest.mark.parametrize("section", ["global", "install"])
def test_hook_keeps_existing_pip_constraint_file(home, hook, section, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", str(home))
    text = f"[{section}]\nconstraint = /srv/mine.txt\n"
    (home / PIP_NAME).write_text(text, "utf-8")
    hook("pip")
    own = (home / "pip" / "gpuinstall-constraints.txt").as_uri()
    text = (home / "pip" / PIP_NAME).read_text("utf-8")
    assert f"constraint = /srv/mine.txt {own}\n" in text


def test_pip_configuration_is_read_once(home):
    (home / "pip" / PIP_NAME).write_text("[global]\ntimeout = 9\n")
    Path("listed.txt").write_text("six\n")
    opened = []

    def listen(event, arguments):
        if event == "open" and str(arguments[0]).endswith(PIP_NAME):
            opened.append(arguments[0])

    sys.addaudithook(listen)
    run_command_line(["plan", "--backend", "cpu", "-r", "listed.txt"])
    of_settings = [path for path in opened if Path(path) == home / "pip" / PIP_NAME]
    assert len(of_settings) == 1
