"""``gpuinstall self``: the tool that bootstrap.py made says where it is, is brought up to date, and goes."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.lab.clone import Person, copy_project, interpreter

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.wheelhouse import Wheelhouse


def command(person: Person) -> Path:
    return person.data / "bin" / "gpuinstall"


def git(folder: Path, *words: str) -> None:
    known = ["-c", "user.name=Ann", "-c", "user.email=ann@mail.example"]
    subprocess.run(["git", "-C", str(folder), *known, *words], check=True, capture_output=True)


def test_it_says_where_it_is_and_the_line_for_path_until_it_is_there(equipped: Person) -> None:
    program = command(equipped)
    absent = equipped.run(program, "self", "path", settings={"SHELL": "/bin/zsh"})
    present = equipped.run(program, "self", "path", settings={"PATH": f"{program.parent}:/usr/bin:/bin"})

    assert (absent.returncode, absent.stderr) == (0, "")
    where, line = absent.stdout.splitlines()
    assert where == str(program)
    assert present.stdout == f"{program}\n"
    found = equipped.run("/bin/sh", "-c", f"{line}; command -v gpuinstall")
    assert found.stdout == f"{program}\n", line
    said = json.loads(equipped.run(program, "self", "path", "--json").stdout)["data"]
    assert (said["path"], said["on_path"], said["line"]) == (str(program), False, line)


def test_it_is_removed_only_when_that_is_confirmed_and_environments_stay(equipped: Person, tmp_path: Path) -> None:
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
    notes = [person.data / name / "mine" for name in ("2026-notes", "uv-notes", "uv-0.1.2", "bin", ".new-idea")]
    for file in notes:
        file.parent.mkdir(exist_ok=True)
        file.write_text("mine", encoding="utf-8")
    done = person.run(command(person), "self", "uninstall", "--yes", cwd=person.data.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Kept        .new-idea, 2026-notes, bin, uv-0.1.2, uv-notes, which bootstrap.py did not make" in done.stdout
    assert {path for path in person.data.rglob("*") if path.is_file()} == set(notes)


def test_what_did_not_come_from_a_repository_says_how_it_is_updated_and_stays(equipped: Person) -> None:
    done = equipped.run(command(equipped), "self", "update")

    assert done.returncode == 2
    assert "error: this gpuinstall was not made from a clone" in done.stderr
    assert "Download the new bootstrap.py, and run it" in done.stderr


@pytest.mark.heavy
def test_a_clone_is_pulled_and_the_command_is_the_newer_one(
    person: Person, wheelhouse: Wheelhouse, tmp_path: Path
) -> None:
    origin, clone = wheelhouse.supply(copy_project(tmp_path / "origin")), tmp_path / "clone"
    git(origin, "init", "-q")
    git(origin, "add", ".")
    git(origin, "commit", "-q", "-m", "first")
    git(tmp_path, "clone", "-q", str(origin), str(clone))
    assert person.run(interpreter("3.12"), clone / "bootstrap.py", "--version").returncode == 0
    [before] = person.tools

    main = origin / "src" / "gpuinstall" / "__init__.py"
    main.write_text(main.read_text(encoding="utf-8") + "\nNEWER = True\n", encoding="utf-8")
    git(origin, "commit", "-q", "-a", "-m", "second")
    done = person.run(command(person), "self", "update")

    assert done.returncode == 0, done.stderr
    assert "Updated" in done.stderr
    assert command(person).resolve().is_relative_to(next(tool for tool in person.tools if tool != before))
    (clone / "README.md").write_text("mine\n", encoding="utf-8")
    (origin / "README.md").write_text("theirs\n", encoding="utf-8")
    git(origin, "commit", "-q", "-a", "-m", "third")
    refused = person.run(command(person), "self", "update")
    assert refused.returncode == 4
    assert "README.md" in refused.stderr, "git's own reason"
    assert (clone / "README.md").read_text(encoding="utf-8") == "mine\n"


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
