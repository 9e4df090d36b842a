"""Activation in all shells, with unusual folder names and after a move."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from gpuinstall.base.shell import (
    ShellName,
    format_activation,
    quote_word,
)
from gpuinstall.environments.activation import relocate_activation
from tests.lab.skips import needs_posix

pytestmark = needs_posix
NAMES = (
    "a blank",
    'it\'s "quoted"',
    "😀 💻",
    "$HOME `x` %s",
    "back\\slash\\",
    "bang!",
)
UNPRINTABLE = ("a\ttab", "a line\nbreak", "👩\u200d💻", "gpj\u202egnp")
PROGRAMS = {
    "bash": "bash -c",
    "sh": "sh -c",
    "zsh": "zsh -fc",
    "ksh": "ksh -c",
}
SHELLS = [
    "bash",
    "sh",
    *(pytest.param(name, marks=pytest.mark.heavy) for name in [*PROGRAMS][2:]),
]


def program_of(name):
    """Return the words that start a shell."""
    words = PROGRAMS[name].split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} here")
    return words


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    venv = tmp_path_factory.mktemp("built") / "venv"
    variables = {**os.environ, "UV_NO_CONFIG": "1"}
    done = process.run(uv.venv_command(Path(sys.executable), venv), env=variables)
    assert done.ok, done.err
    return venv


def environment_in(folder, built):
    venv = shutil.copytree(built, folder / ".venv", symlinks=True)
    relocate_activation(venv)
    return venv


def activated(name, venv):
    """Return a shell's VIRTUAL_ENV and prefix after activation."""
    words = program_of(name)
    line = format_activation(str(venv), "sh", windows=False)
    python = "import sys; print(sys.prefix)"
    script = f"""{line}; printf "[%s]" "$VIRTUAL_ENV"; python -c '{python}'"""
    done = process.run([*words, script], cwd=Path("/"))
    assert done.ok, done.err
    return done.out


@pytest.mark.parametrize("name", SHELLS)
def test_printed_command_activates_an_environment_of_any_name(name, built, tmp_path):
    wrong = {}
    for folder in NAMES:
        venv = environment_in(tmp_path / folder, built)
        said = activated(name, venv)
        if said != f"[{venv}]{venv}\n":
            wrong[folder] = said
    assert wrong == {}


def test_quoted_shell_words_contain_no_control_characters():
    shells: list[ShellName] = ["sh", "powershell"]
    words = [quote_word(text, shell) for text in UNPRINTABLE for shell in shells]
    marks = {mark for word in words for mark in word}
    assert not marks & set("\t\n\u202e\u200d")


@pytest.mark.parametrize("name", SHELLS)
def test_moved_environment_activates_at_its_new_path(name, built, tmp_path):
    environment_in(tmp_path / "before", built)
    moved = (tmp_path / "before").rename(tmp_path / "after it") / ".venv"
    assert activated(name, moved) == f"[{moved}]{moved}\n"


def test_activate_works_with_a_relative_path(built, tmp_path):
    venv = environment_in(tmp_path / "the project", built)
    script = '. "./the project/.venv/bin/activate"; cd /; command -v python'
    done = process.run(["sh", "-c", script], cwd=tmp_path)
    assert done.out.strip() == str(venv / "bin" / "python")
