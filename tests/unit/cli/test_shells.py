import os
import shutil

import pytest

from gpuinstall.base import process
from gpuinstall.base.shell import format_activation, format_path_command
from gpuinstall.cli.commands import detect_shell
from tests.lab.own_sources import only_variables


@pytest.mark.parametrize(
    ("shell", "venv", "line"),
    [
        ("sh", "my env", ". 'my env/bin/activate'"),
        ("powershell", "my env", "& 'my env/bin/activate.ps1'"),
        ("powershell", ".venv", r".venv\Scripts\activate.ps1"),
        ("powershell", "my env", r"& 'my env\Scripts\activate.ps1'"),
    ],
)
def test_activation_command_depends_on_the_shell(shell, venv, line):
    assert format_activation(venv, shell, windows="Scripts" in line) == line


def test_powershell_path_is_a_quoted_string():
    assert (
        format_path_command("C:\\tools", "powershell")
        == "$env:PATH = 'C:\\tools' + [IO.Path]::PathSeparator + $env:PATH"
    )


def test_powershell_is_detected_by_its_variable():
    with only_variables({"PSModulePath": "/opt/microsoft/powershell"}):
        assert detect_shell() == "powershell"
    shell = "powershell" if os.name == "nt" else "sh"
    with only_variables({"SHELL": "/usr/bin/fish"}):
        assert detect_shell() == shell


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh"])
def test_printed_path_command_makes_program_available(shell, tmp_path):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine")
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    (folder / "gpuinstall-here").write_text("#!/bin/sh\necho found\n", "utf-8")
    (folder / "gpuinstall-here").chmod(0o755)
    line = format_path_command(str(folder), "sh")

    words = [program, "-c", f"{line}; gpuinstall-here"]
    done = process.run(words)
    assert done.out == "found\n", done.err
