"""What the locks of a folder are for is what they say: no command of a member adds, moves or drops a target."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli

from tests.integration.test_sync_lab import A100
from tests.lab.cases import mostly_heavy
from tests.lab.driver import FakeDriver
from tests.lab.index import StandInIndex
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

COMMANDS = (
    "lock --upgrade-package numpy",
    "lock",
    "lock --relax",
    "lock cowsay",
    "install filelock",
    "install",
    "install --upgrade-package numpy",
    "install --upgrade",
    "remove filelock",
    "lock --upgrade",
    "sync",
)
STARTS = {
    "two targets, synced": (("cu126", "cpu"), True),
    "two targets": (("cu126", "cpu"), False),
    "one target, synced": (("cu126",), True),
    "one target": (("cu126",), False),
}


@pytest.fixture
def workshop(stand_in: StandInIndex, tmp_path: Path, play) -> Workshop:
    """A member's machine, which would run a newer build than the team's."""
    play(A100)
    make_wheel(stand_in.folder / "simple", "cowsay", "6.1")
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


def targets(workshop: Workshop) -> dict[str, str]:
    """The label of torch by lock."""
    found = {}
    for path in workshop.folder.glob("pylock.*.toml"):
        packages = tomli.loads(path.read_text("utf-8"))["packages"]
        (torch,) = [package["version"] for package in packages if package["name"] == "torch"]
        found[path.name] = torch.partition("+")[2]
    return found


@pytest.mark.parametrize("start", mostly_heavy(STARTS, {"two targets, synced", "one target"}))
def test_no_command_adds_moves_or_drops_a_target(workshop, start):
    tags, is_synced = STARTS[start]
    words = [word for tag in tags for word in ("--target", tag)]
    workshop.document("lock", "torch", "numpy", *words)
    if is_synced:
        workshop.document("sync")
    expected = {f"pylock.{tag}.toml": tag for tag in tags}
    wrong = {}
    for command in COMMANDS:
        if not is_synced and command.startswith(("install --up", "remove")):
            continue
        done = workshop.run(*command.split())
        if done.status or targets(workshop) != expected or "is for none of" in done.err:
            wrong[command] = (done.status, targets(workshop), done.err)
    assert wrong == {}


def test_a_target_beside_the_lock_of_this_machine_takes_nothing_from_it(workshop):
    workshop.document("install", "torch==2.13.0", "--backend", "cu126")
    workshop.document("lock", "torch", "--target", "cpu")
    before = targets(workshop)
    workshop.document("install", "torch", "--upgrade")
    assert targets(workshop) == before == {"pylock.cpu.toml": "cpu", "pylock.cu126.toml": "cu126"}


def test_a_machine_that_runs_none_of_them_is_told_so_and_nothing_is_written(workshop, play):
    workshop.document("lock", "torch", "--target", "cu126")
    play(FakeDriver(nvml_missing=True, cu_missing=True))
    before = workshop.entries()
    for command in ("install", "install cowsay"):
        error = workshop.document(*command.split(), exit_code=6)["errors"][0]
        assert error["code"] == "lock-does-not-fit", command
        assert "gpuinstall lock --target cu126 --target cpu" in error["hint"]
    assert workshop.entries() == before
