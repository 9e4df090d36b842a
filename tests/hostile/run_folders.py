"""Run folders of a fleet as somebody would leave them who may write there: each kind is one small change of a good one.

The folder is the clone of a ``Repository``, so that everything else in its home is the victim.
"""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.environments.environment import Marker
from tests.hostile.repository import LOCK
from tests.unit.install.environments import lock_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.hostile.repository import Repository

    Craft = Callable[[Repository], object]

TEXT = lock_text()
SHA256 = hashlib.sha256(TEXT.encode()).hexdigest()
DIGEST = SHA256[:16]
REPORTS = ("fleet report", "fleet report --scontrol --yes", "fleet report --json")
REPORT, VERIFY, INSTALL = REPORTS[:1], ("node verify --node n1",), ("node install --node n2",)
SURVEY = ("node survey --node n1", *REPORT)
MACHINE = {"schema": "gpuinstall.machine/1", "os": "linux", "arch": "x86_64", "gpus": []}
RUN = {
    "schema": "gpuinstall.run/1",
    "id": "0123",
    "engine": "local",
    "nodes": ["n1", "n2"],
    "hints": {},
}
GROUP: dict[str, Any] = {
    "name": "torch-2.14.1-cpu",
    "lock": LOCK,
    "torch": "2.14.1",
    "backend": "cpu",
    "python": "3.12",
    "nodes": "n[1-2]",
    "sha256": SHA256,
    "nccl": None,
}
PLAN: dict[str, Any] = {"locks": [GROUP], "uncovered": [], "apart": None}
DONE = {"sha256": SHA256, "environment": "/nowhere", "verdict": "passed"}
TOGETHER: dict[str, Any] = {
    "nodes": "n[1-2]",
    "backend": "gloo",
    "good": "n[1-2]",
    "gb_s": 1.0,
    "culprits": [],
}
ODD: tuple[object, ...] = (
    None,
    7,
    "\ud800",
    [],
    {},
    [[]],
    "../../victim",
    "n1;touch executed;#",
    "$(touch executed)\n",
    1e999,
    True,
)
"""What stands where something else belongs."""


class RunAttack(NamedTuple):
    """What is altered, the commands that somebody runs, and what the last one says."""

    craft: Craft
    commands: tuple[str, ...] = REPORT
    says: str = ""


def prepare(repository: Repository) -> None:
    """Write a good run of two nodes, surveyed and installed."""
    write(repository, "run.json", RUN)
    write(repository, "plan.json", PLAN)
    write(repository, "together.json", {"groups": [TOGETHER]})
    repository.write(f"locks/{GROUP['name']}/{LOCK}", TEXT)
    for node in ("n1", "n2"):
        write(repository, f"survey/{node}.json", record(node, "survey", {"machine": MACHINE}))
        write(repository, f"install/{node}.json", record(node, "install", DONE))


def record(node: str, step: str, data: object) -> dict[str, Any]:
    own = {
        "schema": "gpuinstall.node/1",
        "run": "0123",
        "node": node,
        "step": step,
        "status": "ok",
        "tool": "0.1.0",
    }
    return {**own, "attempt": 1, "exit_code": 0, "started": 1.0, "seconds": 1.0, "data": data}


def write(repository: Repository, path: str, document: object) -> None:
    repository.write(path, json.dumps(document))


def altered(path: str, document: dict[str, Any], key: str, value: object) -> Craft:
    """Write a document with one thing in it exchanged; ``key`` is the way to it, such as ``locks.0.sha256``."""
    changed = deepcopy(document)
    place: Any = changed
    *way, last = key.split(".")
    for step in way:
        place = place[int(step) if step.isdecimal() else step]
    place[last] = value
    return lambda repository: write(repository, path, changed)


def raw(path: str, content: bytes) -> Craft:
    return lambda repository: (repository.folder / path).write_bytes(content)


def linked(path: str, target: str) -> Craft:
    """Exchange a part of the run for a link to what is the person's."""

    def craft(repository: Repository) -> None:
        place = repository.folder / path
        if place.exists():
            place.rename(repository.folder / "moved")
        repository.link(path, repository.home / target)

    return craft


def strangely_named(repository: Repository) -> None:
    (repository.folder / "run.json").unlink()
    for name in (
        "n1;touch executed;#",
        "$(touch executed)",
        "`touch executed`",
        "n9\nerror: all is well",
    ):
        write(
            repository,
            f"survey/{name}.json",
            record("n9", "survey", {"machine": MACHINE}) | {"status": "failed"},
        )


def open_to_all(path: str) -> Craft:
    def craft(repository: Repository) -> None:
        (repository.folder / path).mkdir(exist_ok=True)
        (repository.folder / path).chmod(0o777)

    return craft


def forged(place: str, through: str) -> Craft:
    """Leave an environment with the plan's marker, whose Python shows that it ran, and a record that names it."""

    def craft(repository: Repository) -> None:
        venv = repository.home / place
        (venv / "bin").mkdir(parents=True)
        program = venv / "bin" / "python"
        program.write_text(f"#!/bin/sh\ntouch {repository.executed}\n", encoding="utf-8")
        program.chmod(0o755)
        Marker("mine", LOCK, SHA256, "3.12", "2.14.1", "cpu", "here", {"status": "passed"}).write(
            venv
        )
        named = venv
        if through:
            named = repository.folder / through
            repository.link(through, venv)
        write(
            repository,
            "install/n1.json",
            record("n1", "install", {**DONE, "environment": str(named)}),
        )

    return craft


def records() -> Iterator[tuple[str, RunAttack]]:
    """Records in which one thing is another."""
    survey = record("n1", "survey", {"machine": MACHINE})
    for key, value in product((*survey, "data.machine"), ODD):
        yield (
            f"a survey whose {key} is {value!r}",
            RunAttack(altered("survey/n1.json", survey, key, value)),
        )
    for key, value in product(("sha256", "verdict", "environment"), ODD):
        craft = altered("install/n1.json", record("n1", "install", DONE), f"data.{key}", value)
        yield f"an installation whose {key} is {value!r}", RunAttack(craft, (*REPORT, *VERIFY))
    yield "names of records", RunAttack(strangely_named, REPORTS)


def documents() -> Iterator[tuple[str, RunAttack]]:
    """The run, the plan and what came of nodes together, in which one thing is another."""
    for key, value in product(
        ("locks", "uncovered", "apart", *(f"locks.0.{key}" for key in GROUP)), ODD
    ):
        craft = altered("plan.json", PLAN, key, value)
        yield f"a plan whose {key} is {value!r}", RunAttack(craft, (*REPORT, *INSTALL))
    for value in ("../victim", "../../victim", ".", "0" * 63):
        craft = altered("plan.json", PLAN, "locks.0.sha256", value)
        yield (
            f"a plan whose digest is {value!r}",
            RunAttack(craft, INSTALL, "plan.json: locks[0].sha256 "),
        )
    for key, value in product(RUN, ODD):
        yield (
            f"a run whose {key} is {value!r}",
            RunAttack(altered("run.json", RUN, key, value), SURVEY),
        )
    for key, value in product(TOGETHER, ODD):
        craft = altered("together.json", {"groups": [TOGETHER]}, f"groups.0.{key}", value)
        yield f"an all-reduce whose {key} is {value!r}", RunAttack(craft)
    many = raw(
        "plan.json", json.dumps({"locks": [{**GROUP, "nodes": "n[1-999999]"}] * 2000}).encode()
    )
    yield "a plan of more nodes than there are", RunAttack(many, REPORT, "plan.json: ")


def files() -> Iterator[tuple[str, RunAttack]]:
    """Files that are none of ours, and links in the place of ours."""
    contents = (b"", b"\xff\xfe", b"[" * 99999, b'{"a": 1', b"null", b"9" * 5000, b" " * 10_000_001)
    own = ("survey/n1.json", "plan.json", "run.json", "together.json")
    for path, content in product((*own, "install/n1.json"), contents):
        yield f"{path} that holds {content[:8]!r}", RunAttack(raw(path, content))
    for path in own:
        yield f"a link in the place of {path}", RunAttack(linked(path, "bashrc"), SURVEY)
    for path in ("survey", "install", "locks", "wheels", "environments"):
        yield (
            f"a link in the place of {path}",
            RunAttack(linked(path, "thesis"), (*SURVEY, *INSTALL, *VERIFY)),
        )
    for path in (".", "survey", "environments"):
        yield (
            f"{path} that everybody can write to",
            RunAttack(open_to_all(path), (*REPORT, *VERIFY), "everybody can"),
        )


def environments() -> Iterator[tuple[str, RunAttack]]:
    """Environments that are not those of the plan."""
    evil = "evil/.venv"
    places = {
        "elsewhere": evil,
        "of the plan's name elsewhere": f"evil/{DIGEST}/.venv",
        "through a link": evil,
    }
    for name, place in places.items():
        through = f"environments/{DIGEST}/.venv" if name == "through a link" else ""
        yield f"an environment {name}", RunAttack(forged(place, through), VERIFY)


ATTACKS = dict(chain(records(), documents(), files(), environments()))
