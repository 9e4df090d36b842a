"""A run over a fleet: each step is carried to the nodes that still need it, and judged by what they wrote."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from gpuinstall.errors import UsageError
from gpuinstall.files import parse_json
from gpuinstall.fleet.classes import classify
from gpuinstall.fleet.engines import open_engine, own_program
from gpuinstall.fleet.fleet_plan import driver_updates, plan_fleet
from gpuinstall.fleet.hostlist import compress
from gpuinstall.fleet.locks import different_collectives, fetch, make_locks
from gpuinstall.fleet.reconcile import NodeState, mixed_tools, reconcile
from gpuinstall.fleet.run_folder import NodeRecord
from gpuinstall.fleet.together import prove_together

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.fleet.engines import Engine
    from gpuinstall.fleet.environment import Mode
    from gpuinstall.fleet.run_folder import FleetRun, LockGroup, RunFolder
    from gpuinstall.fleet.together import Round
    from gpuinstall.reporter import Reporter
    from gpuinstall.request import Request
    from gpuinstall.session import Session

PLAN_SCHEMA = "gpuinstall.fleet-plan/1"
SECONDS = {"survey": 180.0, "install": 7200.0, "verify": 3600.0, "together": 180.0}
ATTEMPTS = 3
BUILDERS = 3
_POLL_S = 0.5


class Watcher(Protocol):
    """Who is told how a step goes on, while it does."""

    def show(self, step: str, states: Mapping[str, NodeState]) -> None:
        """Show what is known now."""

    def end(self) -> None:
        """Leave the screen to what comes."""

    def said(self, text: str) -> None:
        """Say what is found while more is tried."""


@dataclass(frozen=True)
class Fleet:
    """A run in its folder, and who is told how it goes on."""

    folder: RunFolder
    run: FleetRun
    watcher: Watcher

    @cached_property
    def engine(self) -> Engine:
        """What carries it; a plan and a report need none."""
        return open_engine(self.run.engine)

    def survey(self) -> dict[str, NodeState]:
        """Survey the nodes that have not been; raise UsageError where the folder or the tool is not the same on all."""
        states = self.take("survey", self.run.nodes)
        unshared = [state for state in states.values() if state.code == "run-folder-not-shared"]
        if unshared and not any(state.state == "ok" for state in states.values()):
            first = unshared[0]
            raise UsageError("run-folder-not-shared", f"{first.message}", hint=first.hint)
        records = self.folder.records("survey", self.run.nodes)
        driver = NodeRecord(self.run.id, "this machine", "survey")
        if message := mixed_tools([*records.values(), driver]):
            raise UsageError("mixed-tools", message, hint="install one release on all, or run it from a shared folder")
        return states

    def plan(self, request: Request, catalog: Catalog, session: Session) -> None:
        """Plan for the nodes that were surveyed, make the locks, and write both down."""
        records = self.folder.records("survey", self.run.nodes)
        good = ((node, record.data["machine"]) for node, record in sorted(records.items()) if record.status == "ok")
        plan = plan_fleet(classify(good), request, catalog)
        groups = make_locks(plan, request, catalog, self.folder, session)
        document = {
            "schema": PLAN_SCHEMA,
            "requirements": list(request.requirements),
            "locks": [group.to_dict() for group in groups],
            **plan.to_dict(),
            "updates": [update.to_dict() for update in driver_updates(plan, request, catalog)],
            "apart": different_collectives(groups),
        }
        self.folder.write_document("plan", document)

    def fetch(self, session: Session) -> None:
        """Bring the files of all locks into the folder, where the network is: no node needs one then."""
        fetch(self.folder.groups(), self.folder, session)

    def install(self, mode: Mode | None, options: Sequence[str]) -> dict[str, NodeState]:
        """Bring each lock to its nodes."""
        groups = self.folder.groups()
        mode = mode or self._mode(groups)
        words = [*options, "--mode", mode]
        todo = [group for group in groups if self._unfinished("install", group.nodes)]
        if mode != "node":
            todo = self._built(todo, words)
        nodes = [node for group in todo for node in group.nodes]
        self.take("install", nodes, [*words, "--build"] if mode == "node" else words)
        return self.states("install")

    def verify(self, options: Sequence[str], *, alone: bool) -> dict[str, NodeState]:
        """Prove every GPU of every node, and then the nodes together."""
        installed = [node for node, state in self.states("install").items() if state.state == "ok"]
        self.take("verify", installed, options)
        states = self.states("verify")
        if not alone:
            self.together([node for node, state in states.items() if state.state == "ok"])
        return states

    def together(self, nodes: Sequence[str]) -> None:
        """Prove nodes together, and write down what came of it."""
        here = set(nodes)
        groups = [
            replace(group, nodes=tuple(node for node in group.nodes if node in here)) for group in self.folder.groups()
        ]
        start = time.monotonic()
        document = prove_together(
            self.folder, groups, self.folder.records("survey", nodes), self._round, self.watcher.said
        )
        self.folder.write_document("together", document | {"seconds": round(time.monotonic() - start, 3)})

    def states(self, step: str) -> dict[str, NodeState]:
        """What became of a step on the nodes that it is for."""
        if step == "survey":
            return reconcile(self.run.nodes, self.folder.records(step, self.run.nodes), self.run.id)
        digests = {node: group.sha256 for group in self.folder.groups() for node in group.nodes}
        return reconcile(digests, self.folder.records(step, digests), self.run.id, digests)

    def take(self, step: str, nodes: Sequence[str], options: Sequence[str] = ()) -> dict[str, NodeState]:
        """Have nodes take a step, those alone that have not; what another time may help is tried again, twice."""
        todo = self._unfinished(step, nodes)
        for _ in range(ATTEMPTS):
            if not todo:
                break
            attempt = 1 + max((one.attempt for one in self.folder.records(step, todo).values()), default=0)
            self._launch(step, todo, ["--attempt", str(attempt), *options])
            states = self._judged(step, todo)
            todo = [node for node, state in states.items() if state.may_be_retried]
        return self._judged(step, nodes)

    def _launch(self, step: str, nodes: Sequence[str], options: Sequence[str], *, together: bool = False) -> None:
        """Send the command, and keep what came through the engine alone."""
        part = "together" if together else step
        self.folder.forget(step, nodes)
        words = ["--run-dir", str(self.folder.path.absolute()), "--run", self.run.id]
        command = [*own_program(), "node", "verify" if together else step, *words, *options]
        run = self.engine.run_together if together else self.engine.run_each
        with self._watched(step, nodes):
            printed = run(command, nodes, SECONDS[part])
        for record in _records_in(printed, self.run.id, step):
            if record.node in nodes and self.folder.record(step, record.node) is None:
                self.folder.keep(record)

    def _round(self, told: Round) -> dict[str, NodeRecord]:
        nodes = list(told.devices)
        self._launch(told.step, nodes, ["--together", str(told.number)], together=True)
        return self.folder.records(told.step, nodes)

    def _built(self, groups: Sequence[LockGroup], words: Sequence[str]) -> list[LockGroup]:
        """Have one node of each group build its environment for the others; where one fails, the next tries."""
        waiting = {group.name: group for group in groups}
        for turn in range(BUILDERS):
            builders = {name: group.nodes[turn] for name, group in waiting.items() if turn < len(group.nodes)}
            states = self.take("install", list(builders.values()), [*words, "--build"])
            waiting = {name: waiting[name] for name, node in builders.items() if states[node].state != "ok"}
        return [group for group in groups if group.name not in waiting]

    def _mode(self, groups: Sequence[LockGroup]) -> Mode:
        """Each node on its own, where all have a file system of their own; else one folder for all."""
        nodes = [node for group in groups for node in group.nodes]
        scratch = [record.data.get("scratch", {}) for record in self.folder.records("survey", nodes).values()]
        return "shared" if any(one.get("shared") for one in scratch) else "node"

    def _unfinished(self, step: str, nodes: Sequence[str]) -> list[str]:
        states = self._judged(step, nodes)
        return [node for node in nodes if states[node].state != "ok"]

    def _judged(self, step: str, nodes: Sequence[str], *, ended: bool = True) -> dict[str, NodeState]:
        digests: dict[str, str | None] = {}
        if step in {"install", "verify"}:
            digests = {node: group.sha256 for group in self.folder.groups() for node in group.nodes}
        return reconcile(nodes, self.folder.records(step, nodes), self.run.id, digests, ended=ended)

    @contextmanager
    def _watched(self, step: str, nodes: Sequence[str]) -> Iterator[None]:
        """Show how a step goes on, by the records that there are; the more there are, the rarer."""
        done = threading.Event()

        def watch() -> None:
            pause = _POLL_S
            while not done.wait(pause):
                start = time.monotonic()
                self.watcher.show(step, self._judged(step, nodes, ended=False))
                pause = max(_POLL_S, 10 * (time.monotonic() - start))

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            yield
        finally:
            done.set()
            watching.join()
            self.watcher.show(step, self._judged(step, nodes))
            self.watcher.end()


def begin(folder: RunFolder, engine: str, nodes: tuple[str, ...] | None, watcher: Watcher, reporter: Reporter) -> Fleet:
    """Begin a run; raise UsageError where the engine is not here or the folder holds another run."""
    hints = open_engine(engine).nodes(nodes)
    run = folder.begin(engine, tuple(hints), hints)
    reporter.step("Nodes", f"{len(hints)} by {engine}: {compress(hints)}")
    return Fleet(folder, run, watcher)


def _records_in(printed: str, run: str, step: str) -> Iterator[NodeRecord]:
    """The records of a run among what nodes printed."""
    for line in printed.splitlines():
        with suppress(ValueError):
            record = NodeRecord.read(parse_json(line))
            if record and (record.run, record.step) == (run, step):
                yield record
