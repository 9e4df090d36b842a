import ctypes
import os
import re
import sys

import click
import pytest

from gpuinstall import __version__
from gpuinstall.base import process
from gpuinstall.base.errors import InternalError
from gpuinstall.cli.commands import COMMAND_GROUPS, COMMANDS, load_command
from gpuinstall.cli.main import run_command_line
from tests.lab.clone import ROOT


def commands(name):
    """Return the words of a command, or of each command of a group."""
    found = load_command(name)
    if not isinstance(found, click.Group):
        return [[name]]
    itself = [[name]] if found.invoke_without_command else []
    return itself + [[name, each] for each in found.commands]


def test_help_lists_every_command(capsys):
    assert run_command_line(["--help"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^([A-Z][\w ]+):$", out, re.MULTILINE) == [
        "Options",
        *COMMAND_GROUPS,
    ]
    assert [
        name for name in COMMANDS if re.search(rf"^  {name}\b", out, re.MULTILINE)
    ] == list(COMMANDS)


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_option_prints_the_package_version(option, capsys):
    assert run_command_line([option]) == 0
    assert capsys.readouterr().out.strip().endswith(__version__)
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_and_output_options(name, capsys):
    for words in commands(name):
        assert run_command_line([*words, "--help"]) == 0
        out = capsys.readouterr().out
        for option in ("--json", "--quiet", "--verbose", "--json-events"):
            assert option in out


def test_interrupt_in_exec_exits_with_130(
    tmp_path,
):
    struck = "import gpuinstall.cli.main as main\nmain._run_command = lambda _: exec('raise KeyboardInterrupt')\n"
    (tmp_path / "sitecustomize.py").write_text(struck)
    words = [sys.executable, "-m", "gpuinstall", "plan"]
    done = process.run(words, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (done.status, done.out, done.err.strip()) == (130, "", "error: interrupted")


@pytest.mark.parametrize(
    "words",
    [["plan", "--gpu", "A100", "--driver", "580.95.05"], ["install", "--dry-run"]],
)
def test_missing_home_is_reported(
    words,
    monkeypatch,
    tmp_path,
    capsys,
):
    variable = "USERPROFILE" if os.name == "nt" else "HOME"
    for name in (variable, "HOMEPATH", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    # This user is unknown to the system.
    monkeypatch.setattr(os, "getuid", lambda: 54321, raising=False)
    monkeypatch.chdir(tmp_path)

    assert run_command_line(words) == 2
    said = capsys.readouterr().err
    assert "error: this user has no home folder" in said
    assert f"do    Set {variable} to an existing folder" in said


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("gpuinstall.cli.main._run_command", "plan"),
        # These options belong to the started program.
        ("gpuinstall.cli.run.enter_project_folder", "run tool --json -v"),
    ],
)
def test_unexpected_error_prints_line_or_traceback(capsys, monkeypatch, place, line):
    def wrong(_argument):
        raise ValueError("odd")

    monkeypatch.setattr(place, wrong)
    command, *words = line.split()

    assert run_command_line([command, *words]) == InternalError.exit_code
    out, err = capsys.readouterr()
    assert (out, "error: a bug in gpuinstall: ValueError: odd" in err) == ("", True)
    with pytest.raises(ValueError, match="odd"):
        run_command_line([command, "--verbose", *words])


@pytest.mark.skipif(
    os.name != "nt", reason="only Windows limits paths to 260 characters"
)
def test_long_paths_are_allowed(tmp_path):
    run_command_line(["--version"])
    folder = tmp_path / ("x" * 200) / ("y" * 200)
    folder.mkdir(parents=True)
    assert folder.is_dir()
    # Wine has no limit.
    find_block = vars(ctypes)["windll"].ntdll.RtlGetCurrentPeb
    find_block.restype = ctypes.c_void_p
    assert ctypes.c_ubyte.from_address(find_block() + 3).value & 0x80
