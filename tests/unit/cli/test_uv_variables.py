import re
import shutil
from typing import get_args

import pytest

from gpuinstall.base import process
from gpuinstall.base.shell import Shell, assignments
from gpuinstall.base.uv import uv
from gpuinstall.cli.shellenv import UV_TAGS

PROGRAMS = {"sh": "dash", "bash": "bash", "zsh": "zsh", "fish": "fish", "powershell": "pwsh"}
ECHO = {"fish": 'printf "%s" "$UV_X"', "powershell": "[Console]::Write($env:UV_X)"}


@pytest.mark.parametrize("shell", get_args(Shell))
def test_a_shell_reads_what_was_written(shell):
    program = shutil.which(PROGRAMS[shell])
    if program is None:
        pytest.skip(f"no {PROGRAMS[shell]} here")
    value = "it's $HOME \\ \"a\"  b\\'"
    echo = ECHO.get(shell, 'printf "%s" "$UV_X"')
    done = process.run([program, "-c", f"{assignments({'UV_X': value}, shell)}{echo}"])
    assert (done.out, done.err) == (value, "")


def test_fish_and_powershell_have_their_own_words():
    assert assignments({"UV_X": "it's"}, "fish") == "set -gx UV_X 'it'\\''s'\n"
    assert assignments({"UV_X": "it's"}, "powershell") == "$env:UV_X = 'it''s'\n"


def test_the_tags_are_those_of_the_pinned_uv():
    refused = process.run([uv(), "pip", "install", "--torch-backend", "none-such", "torch"]).err
    known = set(re.findall(r"\b(?:cpu|cu\d+)\b", refused.partition("possible values")[2]))
    assert known == UV_TAGS
