"""Tests that names in printed commands are quoted for the shell."""

import json
import os
import shutil
import subprocess

import pytest

from gpuinstall.base.shell import (
    ShellName,
    format_activation,
    format_path_command,
    quote_word,
)
from tests.lab.bounded import run
from tests.lab.programs import write_program

CANARY = "executed"
SHELLS: dict[str, ShellName] = {
    "sh": "sh",
    "dash": "sh",
    "bash": "sh",
    "zsh": "sh",
}
HERE = tuple(name for name in SHELLS if shutil.which(name))
NAMES = (
    "plain",
    "two words",
    "it's",
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f";touch {CANARY};#",
    f"'; touch {CANARY}; '",
    f'"; touch {CANARY}; "',
    f"\\'; touch {CANARY}; #",
    f"\\'A' ; touch {CANARY} ; 'C\\'",
    f"\n touch {CANARY}\n",
    f"a\r\ntouch {CANARY}",
    f"\x1b[2K$(touch {CANARY})\\",
    f"\x1b'; touch {CANARY}; '",
    f"a' & touch {CANARY} & '",
    f"(touch {CANARY})",
    f"| touch {CANARY}",
    f"> {CANARY}",
    "*",
    "~root",
    "!!",
    "!-1",
    "=ls",
    "-rf",
    "{a,b}",
    "%s%n",
    "‘; touch executed; ’",
    "\u202etouch",
    "\udc80\udcff",
    "$HOME",
    "#",
)
"""Names of files, folders, and packages that need quoting."""


def printed(name, shell):
    """Yield each printed command with a name, and the shell it is for."""
    place = name.replace("/", "-")
    yield f"echo {quote_word(name, shell)}"
    yield f"echo --venv {quote_word(name, shell)} {quote_word(name, shell)}"
    if shell:
        yield format_activation(f"./{place}", shell, windows=False)
        yield format_path_command(f"/nowhere/{place}", shell)


def tried(line, program, folder):
    """Run a printed command in a shell, and return a quoting fault if any."""
    folder.mkdir(parents=True)
    for name in ("gpuinstall", "rm", "uv"):
        write_program(folder / "bin" / name)
    path = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    ended = run([program, "-c", line], {**os.environ, **path}, folder, 20.0)
    left = sorted(
        entry.name
        for entry in folder.iterdir()
        if entry.name not in {"bin", ".local", ".cache"}
    )
    if left:
        return f"it left {json.dumps(left)}: {line!r}"
    if not all(part.isprintable() for part in line.splitlines()):
        return f"it cannot be printed: {line!r}"
    return "it did not end" if ended.status is None else ""


pytestmark = pytest.mark.skipif(os.name == "nt", reason="requires Unix shells")


@pytest.mark.parametrize("program", HERE)
def test_shell_does_not_execute_path_names(program, tmp_path):
    faults = [
        fault
        for at, name in enumerate(NAMES)
        for shell in (SHELLS[program], None)
        for number, line in enumerate(printed(name, shell))
        if (fault := tried(line, program, tmp_path / f"{at}-{shell}-{number}"))
    ]

    assert faults == []


@pytest.mark.parametrize("program", HERE)
def test_quoted_name_is_one_shell_argument(program):
    for name in filter(str.isprintable, NAMES):
        done = subprocess.run(
            [program, "-c", f"printf '%s_' {quote_word(name, SHELLS[program])}"],
            capture_output=True,
            check=False,
        )
        assert done.stdout == os.fsencode(name) + b"_"


def test_typographic_quotes_are_escaped_for_powershell():
    assert quote_word("a’; calc; ‘", "powershell") == "'a’’; calc; ‘‘'"
