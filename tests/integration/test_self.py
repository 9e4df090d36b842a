"""``gpuinstall self``: the tool that bootstrap.py made says where it is, and goes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.clone import Person


def command(person: Person) -> Path:
    return person.data / "bin" / "gpuinstall"


def test_it_says_where_it_is_and_the_line_for_path_until_it_is_there(equipped: Person) -> None:
    program = command(equipped)
    absent = equipped.run(program, "self", "path", settings={"SHELL": "/bin/zsh"})
    present = equipped.run(
        program, "self", "path", settings={"PATH": f"{program.parent}:/usr/bin:/bin"}
    )

    assert (absent.returncode, absent.stderr) == (0, "")
    where, line = absent.stdout.splitlines()
    assert where == str(program)
    assert present.stdout == f"{program}\n"
    found = equipped.run("/bin/sh", "-c", f"{line}; command -v gpuinstall")
    assert found.stdout == f"{program}\n", line
    said = json.loads(equipped.run(program, "self", "path", "--json").stdout)["data"]
    assert (said["path"], said["on_path"], said["line"]) == (str(program), False, line)


def test_it_is_removed_only_when_that_is_confirmed_and_environments_stay(
    equipped: Person, tmp_path: Path
) -> None:
    person = equipped.copied(tmp_path / "home")
    (person.home / "project" / ".venv").mkdir(parents=True)
    asked = person.run(command(person), "self", "uninstall")

    assert asked.returncode == 2
    assert "nothing was removed" in asked.stderr
    assert "gpuinstall self uninstall --yes" in asked.stderr
    assert command(person).exists()
    done = person.run(command(person), "self", "uninstall", "--yes", cwd=person.data.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Removed     gpuinstall\n"
    assert not person.data.exists()
    assert (person.home / "project" / ".venv").exists()


def test_only_what_bootstrap_made_is_removed(equipped: Person, tmp_path: Path) -> None:
    person = equipped.copied(tmp_path / "home")
    notes = [
        person.data / name / "mine"
        for name in ("2026-notes", "uv-notes", "uv-0.1.2", "bin", ".new-idea")
    ]
    for file in notes:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine", encoding="utf-8")
    done = person.run(command(person), "self", "uninstall", "--yes", cwd=person.data.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "Kept        .new-idea, 2026-notes, bin, uv-0.1.2, uv-notes, which bootstrap.py did not make"
        in done.stdout
    )
    assert {path for path in person.data.rglob("*") if path.is_file()} == set(notes)


def test_the_line_for_path_is_written_once_when_that_is_confirmed_and_taken_out_again(
    equipped: Person, tmp_path: Path
) -> None:
    person = equipped.copied(tmp_path / "home")
    start = person.home / ".bashrc"
    start.write_text("alias l=ls\n", encoding="utf-8")
    bash = {"SHELL": "/bin/bash"}
    asked = person.run(command(person), "self", "path", "--write", settings=bash)
    assert (asked.returncode, start.read_text(encoding="utf-8")) == (2, "alias l=ls\n")
    # As bootstrap.py prints them: the line for this shell first, then the command for every new one, confirmed.
    line = person.run(command(person), "self", "path", settings=bash).stdout.splitlines()[1]
    (again,) = re.findall(r"^  do +(.*)$", asked.stderr, re.MULTILINE)
    for _ in range(2):
        assert person.run("/bin/bash", "-c", f"{line}; {again}", settings=bash).returncode == 0
    text = start.read_text(encoding="utf-8")
    assert text.count("export PATH=") == 1
    found = person.run("/bin/bash", "-c", f". {start}; command -v gpuinstall")
    assert found.stdout == f"{command(person)}\n"
    assert person.run(command(person), "self", "uninstall", "--yes", settings=bash).returncode == 0
    assert start.read_text(encoding="utf-8") == "alias l=ls\n\n"
