"""What is advised is a command that can be pasted, or a sentence that says what to change."""

import ast
import re
from itertools import chain
from pathlib import Path

import pytest

from gpuinstall.base.advice import as_pasted, for_command
from gpuinstall.base.text import some
from gpuinstall.catalog.failures.packages import load_packages, load_repositories
from gpuinstall.catalog.failures.table import (
    load_failures,
    load_lookalikes,
    load_problems,
)
from tests.lab.advice import judged

ROOT = Path(__file__).resolve().parents[3]
REFUSED = """\
sudo reboot
Run it again with --backend cpu: the CPU build instead
Run it again with --backend cpu --torch-index https://index.example/whl: another index that has it
Run it again without --python 3.8"""


def test_advice_to_run_a_command_again_is_its_whole_line():
    login = "https://me:secret@index.example"
    run = ("gpuinstall", "run", "--backend=cu130", "--backend", "xpu", login)
    again = "gpuinstall run https://****@index.example --backend cpu"
    mirror = "--torch-index https://index.example/whl"
    assert for_command(REFUSED, run, ("my program",)) == (
        "sudo reboot",
        f"{again} 'my program'   # the CPU build instead",
        f"{again} {mirror} 'my program'   # another index that has it",
        "Run it again without --python 3.8",
    )


def test_advice_with_an_option_that_the_command_lacks_is_left_out():
    lines = ("sudo reboot", "Run it again without --python 3.8")
    assert for_command(REFUSED, ["it"], options={"--any"}) == lines


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("sh", "export A='b c'   # why"),
        ("powershell", "$env:A = 'b c'   # why"),
    ],
)
def test_a_variable_is_set_as_the_shell_does(shell, line):
    assert as_pasted("export A='b c'   # why", shell) == line


def test_names_beyond_six_are_a_number():
    assert some(["numpy", "pandas"]) == "numpy, pandas"
    assert some(list("abcdefg")) == "a, b, c, d, e, f, g"
    assert some(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"


def test_an_advice_that_fails_when_pasted_is_found():
    assert judged("gpuinstall install --nothing")
    assert judged("gpuinstall instal")
    assert judged("df -h; (")
    assert judged("gpuinstall sync   # again") is None
    assert judged("Check the name") is None


def test_every_advice_of_every_failure_is_prose_or_a_command():
    lines = [str(step) for step in catalogue_steps()]
    assert len(lines) > 400
    for line in lines:
        command = re.sub(r"\{(?:at|into|anew)\}", "", line)
        assert judged(re.sub(r"\{\w+\}", "x", command)) is None, line


def test_no_sentence_of_the_catalogue_hides_a_command():
    lines = [step.command.removeprefix("sudo ") for step in catalogue_steps()]
    programs = {line.split()[0] for line in lines if not line[0].isupper()}
    names = "|".join(map(re.escape, programs))
    hidden = re.compile(rf": (sudo |[A-Z_]+=\S* )?({names}) ")
    assert list(filter(hidden.search, lines)) == []


def catalogue_steps():
    """All that the entries, the problems and the packages of drivers advise."""
    entries = [*load_failures().values(), *load_lookalikes().values()]
    tables = [entry.fix for entry in entries]
    tables += [kind.fix for kind in load_problems().values() if kind.fix]
    steps = [*chain(*load_repositories().values())]
    for table in tables:
        steps += chain(*table.commands.values())
    for row in load_packages():
        steps += row.steps
    return steps


def test_every_hint_that_is_written_in_the_source_is_prose_or_a_command():
    hints = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.keyword(arg="hint", value=ast.Constant(value=str(hint))):
                    hints.append(hint)
    assert len(hints) > 50
    for line in "\n".join(hints).splitlines():
        assert judged(line) is None, line
        # It is printed as the whole command line, which is pasted.
        assert "--torch-index URL" not in line
