import os
import shutil

import pytest

from gpuinstall.base import process
from gpuinstall.base.shell import activation, on_path, this_shell


@pytest.mark.parametrize(
    ("shell", "venv", "line"),
    [
        ("bash", "my env", "source 'my env/bin/activate'"),
        ("zsh", "my env", "source 'my env/bin/activate'"),
        ("sh", "my env", ". 'my env/bin/activate'"),
        ("fish", "my env", "source 'my env/bin/activate.fish'"),
        ("powershell", "my env", "& 'my env/bin/activate.ps1'"),
        ("powershell", ".venv", r".venv\Scripts\activate.ps1"),
        ("powershell", "my env", r"& 'my env\Scripts\activate.ps1'"),
        ("cmd", ".venv", r".venv\Scripts\activate.bat"),
        ("cmd", "my env", r'"my env\Scripts\activate.bat"'),
    ],
)
def test_an_environment_is_activated_as_each_shell_does(shell, venv, line):
    assert activation(venv, shell, windows="Scripts" in line) == line


def test_powershell_is_given_a_text_and_no_bare_path_which_it_would_run():
    assert (
        on_path("C:\\tools", "powershell")
        == "$env:PATH = 'C:\\tools' + [IO.Path]::PathSeparator + $env:PATH"
    )


def test_the_shell_is_the_program_that_called_else_what_the_variables_say():
    assert this_shell({"SHELL": "/bin/bash"}, "fish") == "fish"
    assert this_shell({"SHELL": "/usr/bin/zsh"}, "make") == "zsh"
    assert this_shell({}, None) == "sh"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_line_for_path_finds_the_command(shell, tmp_path):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine")
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    (folder / "gpuinstall-here").write_text("#!/bin/sh\necho found\n", "utf-8")
    (folder / "gpuinstall-here").chmod(0o755)
    line = on_path(str(folder), shell)

    # Where fish keeps it for good.
    home = dict.fromkeys(("HOME", "XDG_CONFIG_HOME"), str(tmp_path))
    words = [program, "-c", f"{line}; gpuinstall-here"]
    done = process.run(words, env={**os.environ, **home})
    assert done.out == "found\n", done.err
