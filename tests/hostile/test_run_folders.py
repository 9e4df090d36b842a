"""Run folders that others may write to: nothing outside them is touched, nothing is run, a bad record is one node."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.hostile import run_folders
from tests.hostile.repository import Repository
from tests.hostile.run_folders import ATTACKS
from tests.lab.driver import FakeDriver
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.process import Finished
    from tests.lab.fixtures import Play

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and owners as Unix has them")

TRIED = [
    name
    for at, name in enumerate(ATTACKS)
    if at % 60 == 0 or name.startswith(("an image", "an environment"))
]
"""The rest is tried by ``make torture``."""


@pytest.fixture
def repository(tmp_path: Path, play: Play) -> Repository:
    play(FakeDriver(nvml_missing=True, cu_missing=True))
    made = Repository(tmp_path / "home")
    made.prepare()
    run_folders.prepare(made)
    return made


def ran(repository: Repository, words: str) -> Finished:
    person = {
        "HOME": str(repository.home),
        "UV_OFFLINE": "1",
        "GPUINSTALL_SCRATCH": str(repository.home / "caches"),
    }
    workshop = Workshop(repository.folder, repository.home / "caches", person)
    return workshop.run(*words.split(), "--run-dir", str(repository.folder))


@pytest.mark.parametrize("name", dict.fromkeys(TRIED))
def test_a_run_folder_of_others_harms_nothing_and_is_a_fault_of_nobody_else(
    repository: Repository, name: str
) -> None:
    attack = ATTACKS[name]
    attack.craft(repository)
    before = repository.victims()
    for words in attack.commands:
        done = ran(repository, words)
        assert done.status not in {1, None}, done.err
        assert "Traceback" not in done.err
        assert repository.victims() == before, words
    assert attack.says in done.out + done.err


def test_a_bad_record_is_one_bad_node_and_the_others_are_reported(repository: Repository) -> None:
    broken = run_folders.record("n1", "survey", {}) | {"status": "zzz"}
    run_folders.write(repository, "survey/n1.json", broken)
    done = ran(repository, "fleet report --json")
    document = json.loads(done.out)

    assert document["data"]["hosts"] == {"failed": "n1", "ok": "n2"}
    assert document["data"]["nodes"]["n1"]["survey"]["message"].startswith(
        "survey/n1.json: status is 'zzz'"
    )
    assert done.status == 7


def test_names_of_records_that_are_no_nodes_are_refused_and_reach_no_line_for_a_shell(
    repository: Repository,
) -> None:
    run_folders.strangely_named(repository)
    for node in ("n1", "n2"):
        (repository.folder / "survey" / f"{node}.json").unlink()
    assert ran(repository, "fleet report --scontrol --yes").out == "\n"
    done = ran(repository, "fleet report")

    assert "survey/n1;touch executed;#.json" in done.out
    assert "survey/n9\\nerror: all is well.json" in done.out
    assert done.status == 2


def test_a_fleet_that_was_only_surveyed_is_not_called_proven(repository: Repository) -> None:
    for name in ("plan.json", "together.json", "install/n1.json", "install/n2.json"):
        (repository.folder / name).unlink()
    (repository.folder / "install").rmdir()
    done = ran(repository, "fleet report")

    assert done.status == 0
    assert done.out.splitlines()[-1] == "Nodes       2 of 2 nodes are surveyed"


@pytest.mark.skipif(os.getuid() != 0, reason="gives a folder to another user")
def test_the_owner_of_a_folder_is_named_where_it_is_another_user(repository: Repository) -> None:
    os.chown(repository.folder, 12345, 12345)

    assert "belongs to another user (uid 12345)" in ran(repository, "fleet report").err
