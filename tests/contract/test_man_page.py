"""Tests of the man page, formatted by man(1)."""

import os
import re
import shutil
import subprocess

import pytest
from tools.docs import MAN_PAGE, escape_roff

from gpuinstall.base import process
from gpuinstall.cli.commands import COMMANDS


def formatted(page):
    man = shutil.which("man")
    # A minimized Ubuntu has a placeholder script of that name.
    if not man or not process.run([man, "--version"]).out.startswith("man "):
        pytest.skip("no man here")
    wide = {**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["man", "--warnings=all", "-l", page],
        env=wide,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


def test_man_page_lists_commands_and_statuses():
    text, warnings = formatted(MAN_PAGE)

    assert warnings == ""
    assert [
        name
        for name in COMMANDS
        if not re.search(rf"^   gpuinstall {name}\b", text, re.MULTILINE)
    ] == []
    assert {0, 1, 2, 3, 4, 5, 6, 7, 8, 130} == set(
        map(int, re.findall(r"^       (\d+) ", text, re.MULTILINE))
    )


def test_man_page_escapes_roff_characters(tmp_path):
    said = ".venv\\Scripts it's --here"
    (tmp_path / "page.1").write_text(
        f'.TH PAGE 1 "" "" ""\n.SH NAME\n{escape_roff(said)}\n', "utf-8"
    )
    text, warnings = formatted(tmp_path / "page.1")

    assert (said in text, warnings) == (True, "")
