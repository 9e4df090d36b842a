"""Repeated commands with an unchanged index leave a lock unchanged."""

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.clone import ROOT
from tests.lab.index_text import steps_of
from tests.stories import test_stories

stage = test_stories.stage

HERE = "machine RTX 4090, driver 535.183.01"


def read_requests():
    """Read the preparation and lock command of each request."""
    text = (ROOT / "tests/data/round_trips.txt").read_text("utf-8").rstrip()
    requests = {}
    for paragraph in text.split("\n\n"):
        (kind, _), *steps, (command, _) = steps_of(paragraph)
        requests[kind.removeprefix("# ")] = steps, command.removeprefix("$ ")
    return requests


REQUESTS = read_requests()
QUICK = {"two targets"}
INSTALLED = ("gpuinstall sync", "gpuinstall install")


def prepare(stage, kind):
    """Run the lock command, and return it."""
    steps, command = REQUESTS[kind]
    for line, below in ((HERE, ()), *steps):
        stage.step(line, below)
    stage.command(command)
    return command


@pytest.mark.parametrize("kind", mostly_heavy(REQUESTS, QUICK))
def test_lock_is_unchanged_by_repeated_commands(stage, kind):
    made = prepare(stage, kind)
    locks = locks_of(stage)
    assert locks
    again = "gpuinstall lock"
    check = "gpuinstall lock check"
    moved = {}
    upgrade = f"{again} --upgrade"
    further = (f"{again} --dry-run", f"{again} --offline", f"{upgrade}-package torch")
    for line in (made, again, check, *INSTALLED, again, check, upgrade, *further):
        came = stage.command(line)
        if locks_of(stage) != locks or any(one.startswith("exit") for one in came):
            moved[line] = came
            break
    assert moved == {}


PLAIN = (
    "torch alone",
    "a range",
    "torchvision",
    "an older torch for a program",
    "two targets",
)


@pytest.mark.parametrize("kind", mostly_heavy(PLAIN, {"a range"}))
def test_lock_is_unchanged_by_new_or_yanked_files(stage, kind):
    made = prepare(stage, kind)
    locks = locks_of(stage)
    news = (
        "torch cu126: sm_80 sm_89\nwheel numpy 99.0\nwheel painter 99.0: torch\n"
        "yank numpy-2.3.4*\nyank painter-1.0*\nlater"
    )
    for line, below in steps_of(news):
        stage.step(line, below)

    for line in (made, "gpuinstall lock", "gpuinstall lock check"):
        came = stage.command(line)
        assert locks_of(stage) == locks, came
        assert came[:1] != ["exit 6"], came
    stage.command("gpuinstall lock --upgrade")
    assert locks_of(stage) != locks


def locks_of(stage):
    """Return the text of every lock in the folder."""
    folder = stage.workshop.folder
    return {path.name: path.read_text("utf-8") for path in folder.glob("pylock.*.toml")}
