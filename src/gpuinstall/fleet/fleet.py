"""A run over a fleet: nodes take the steps that they need, and are judged by their records."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from gpuinstall.errors import UsageError
from gpuinstall.files import parse_json, parse_toml
from gpuinstall.fleet.classes import NodeClass, node_classes
from gpuinstall.fleet.documents import FleetRun, LockGroup, NodeRecord, UnservedNodes
from gpuinstall.fleet.engines import Engine, open_engine, own_program
from gpuinstall.fleet.fleet_plan import plan_fleet
from gpuinstall.fleet.hostlist import NodeName, compress
from gpuinstall.fleet.locks import different_collectives, fetch, group_lock, make_locks
from gpuinstall.fleet.reconcile import NodeState, mixed_tools, reconcile
from gpuinstall.fleet.together import Round, prove_together
from gpuinstall.lock.source_builds import source_builds
from gpuinstall.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.fleet.environment import Mode
    from gpuinstall.fleet.run_folder import RunFolder
    from gpuinstall.reporter import Reporter
    from gpuinstall.request import Request
    from gpuinstall.session import Session

PLAN_SCHEMA = "gpuinstall.fleet-plan/1"
STEP_SECONDS = {"survey": 180.0, "install": 7200.0, "verify": 3600.0, "together": 180.0}
STEP_ATTEMPTS = 3
BUILDERS = 3
_POLL_S = 0.5


class Watcher(Protocol):
    """Who is told how a step goes on, while it does."""

    def show(self, step: str, states: Mapping[NodeName, NodeState]) -> None:
        """Show what is known now."""

    def end(self) -> None:
        """Leave the screen to what comes."""

    def say(self, text: str) -> None:
        """Show what comes out while more is tried."""


@dataclass(frozen=True)
class Fleet:
    """A run in its folder."""

    folder: RunFolder
    run: FleetRun
    watcher: Watcher
    root: tuple[str, ...] = ()
    """The options of a node's command that name where environments lie."""

    @cached_property
    def engine(self) -> Engine:
        """What carries it; a plan and a report need none."""
        return open_engine(self.run.engine)

    def survey(self) -> None:
        """Survey the nodes that have not been.

        Raises:
            UsageError: if the folder or the tool is not the same on all.
        """
        states = self.take("survey", self.run.nodes).values()
        unshared = [state for state in states if state.code == "run-folder-not-shared"]
        if unshared and not any(state.state == "ok" for state in states):
            first = unshared[0]
            raise UsageError(
                "run-folder-not-shared",
                f"{first.message}",
                hint=first.hint,
            )
        driver = NodeRecord(self.run.id, NodeName("this-machine"), "survey")
        message = mixed_tools([*self.folder.records("survey", self.run.nodes), driver])
        if message:
            hint = "Install one release on all nodes, or share one folder"
            raise UsageError(
                "mixed-tools",
                message,
                hint=hint,
            )

    def plan(
        self,
        request: Request,
        catalog: Catalog,
        session: Session,
    ) -> dict[str, Any]:
        """Plan for the nodes that were surveyed, make the locks, and write both down."""
        classes, malformed = self._classes(sorted(self.run.nodes))
        plan = plan_fleet(classes, request, catalog)
        groups = make_locks(plan, request, catalog, self.folder, session)
        document = plan.to_dict()
        uncovered = [*document["uncovered"], *(entry.to_dict() for entry in malformed)]
        document = {
            "schema": PLAN_SCHEMA,
            "requirements": list(request.requirements),
            "locks": [group.to_dict() for group in groups],
            **document,
            "uncovered": uncovered,
            "apart": different_collectives(groups),
        }
        self.folder.write_document("plan", document)
        return document

    def fetch(self, session: Session) -> None:
        """Download the files of all locks into the folder: no node needs the network then."""
        fetch(self.folder.plan().groups, self.folder, session)

    def install(self, mode: Mode | None) -> None:
        """Install each lock on its nodes."""
        groups = self.folder.plan().groups
        mode = mode or self._mode(groups)
        words = ["--mode", mode]
        todo = [group for group in groups if self._unfinished("install", group.nodes)]
        if mode == "node":
            words += ["--build"]
            self.take("install", self._compilers(todo), words)
        else:
            todo = self._built(todo, words)
        self.take("install", _nodes_of(todo), words)

    def verify(self, options: Sequence[str], *, alone: bool) -> None:
        """Prove every GPU of every node, and then the nodes together."""
        self.take("verify", self._well("install"), options)
        if not alone:
            self.together(self._well("verify"))

    def together(self, nodes: Sequence[NodeName]) -> None:
        """Prove nodes together, and write down what came of it."""
        start = time.monotonic()
        selected = set(nodes)
        groups = []
        for group in self.folder.plan().groups:
            members = tuple(node for node in group.nodes if node in selected)
            groups.append(replace(group, nodes=members))
        results = prove_together(
            self.folder,
            groups,
            surveys={record.node: record for record in self.folder.records("survey", nodes)},
            run=self._round,
            say=self.watcher.say,
        )
        document = {
            "groups": [group.to_dict() for group in results],
            "seconds": round(time.monotonic() - start, 3),
        }
        self.folder.write_document("together", document)

    def _well(self, step: str) -> list[NodeName]:
        """Return the nodes of the plan on which a step has ended well."""
        states = self._judged(step, _nodes_of(self.folder.plan().groups))
        return [node for node, state in states.items() if state.state == "ok"]

    def take(
        self,
        step: str,
        nodes: Sequence[NodeName],
        options: Sequence[str] = (),
    ) -> dict[NodeName, NodeState]:
        """Have nodes take a step, if they have not; return what became of all.

        What another time may help is tried again, twice.
        """
        todo = self._unfinished(step, nodes)
        for _ in range(STEP_ATTEMPTS):
            if not todo:
                break
            earlier = [record.attempt for record in self.folder.records(step, todo)]
            attempt = 1 + max(earlier, default=0)
            self._launch(step, todo, ["--attempt", str(attempt), *options])
            states = self._judged(step, todo)
            todo = [node for node, state in states.items() if state.may_be_retried]
        return self._judged(step, nodes)

    def _launch(
        self,
        step: str,
        nodes: Sequence[NodeName],
        options: Sequence[str],
        *,
        together: bool = False,
    ) -> None:
        """Send the command, and keep the records that came through the engine alone."""
        self.folder.forget(step, nodes)
        command = [*own_program(), "node", "verify" if together else step]
        command += ["--run-dir", str(self.folder.path.absolute()), "--run", self.run.id]
        if step != "survey":
            command += self.root
        command += options
        seconds = STEP_SECONDS["together" if together else step]
        with self._watched(step, nodes):
            printed = self.engine.run(
                command,
                nodes,
                seconds,
                together=together,
            )

        silent = set(nodes)
        silent.difference_update(record.node for record in self.folder.records(step, nodes))
        for line in printed.splitlines():
            with suppress(ValueError):
                record = NodeRecord.read(parse_json(line))
                is_expected = record.run == self.run.id and record.step == step
                if is_expected and record.node in silent:
                    self.folder.keep(record)

    def _round(self, attempt: Round) -> dict[NodeName, NodeRecord]:
        nodes = list(attempt.devices)
        self._launch(
            attempt.step,
            nodes,
            ["--together", str(attempt.number)],
            together=True,
        )
        return {record.node: record for record in self.folder.records(attempt.step, nodes)}

    def _built(self, groups: Sequence[LockGroup], words: Sequence[str]) -> list[LockGroup]:
        """Have one node of each group build its environment; return the groups that have one.

        If the build fails, the next node tries.
        """
        waiting = list(groups)
        for turn in range(BUILDERS):
            able = [group for group in waiting if turn < len(group.nodes)]
            builders = {group.name: group.nodes[turn] for group in able}
            states = self.take("install", list(builders.values()), [*words, "--build"])
            for group in list(waiting):
                if group.name in builders and states[builders[group.name]].state == "ok":
                    waiting.remove(group)
        return [group for group in groups if group not in waiting]

    def _compilers(self, groups: Sequence[LockGroup]) -> list[NodeName]:
        """Return the first node of each kind that compiles: the others take its wheels."""
        first = list[NodeName]()
        for group in groups:
            builds = source_builds(parse_toml(group_lock(group, self.folder).text))
            if any(build.known.compiles for build in builds):
                classes, _ = self._classes(group.nodes)
                first += [kind.nodes[0] for kind in classes]
        return first

    def _classes(
        self,
        nodes: Sequence[NodeName],
    ) -> tuple[tuple[NodeClass, ...], tuple[UnservedNodes, ...]]:
        surveys = self.folder.records("survey", nodes)
        records = [record for record in surveys if record.status == "ok"]
        return node_classes((record.node, record.data.get("machine")) for record in records)

    def _mode(self, groups: Sequence[LockGroup]) -> Mode:
        """Return whether each node has a file system of its own, or all need one folder."""
        for record in self.folder.records("survey", _nodes_of(groups)):
            scratch = record.data.get("scratch")
            if isinstance(scratch, dict) and scratch.get("shared"):
                return "shared"
        return "node"

    def _unfinished(self, step: str, nodes: Sequence[NodeName]) -> list[NodeName]:
        states = self._judged(step, nodes)
        return [node for node in nodes if states[node].state != "ok"]

    def _judged(
        self,
        step: str,
        nodes: Sequence[NodeName],
        *,
        ended: bool = True,
    ) -> dict[NodeName, NodeState]:
        digests: dict[NodeName, str] | None = None
        if step in {"install", "verify"}:
            digests = {}
            for group in self.folder.plan().groups:
                digests.update(dict.fromkeys(group.nodes, group.sha256))
        records = self.folder.records(step, nodes)
        return reconcile(
            nodes,
            records,
            self.run.id,
            digests,
            ended=ended,
        )

    @contextmanager
    def _watched(self, step: str, nodes: Sequence[NodeName]) -> Iterator[None]:
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


def begin(
    folder: RunFolder,
    engine: str,
    nodes: tuple[NodeName, ...] | None,
    reporter: Reporter,
) -> None:
    """Begin a run; raise UsageError if the engine is not here or the folder holds another run."""
    hints = open_engine(engine).nodes(nodes)
    folder.begin(engine, tuple(hints), hints)
    reporter.step("Nodes", f"{len(hints)} by {engine}: {compress(hints)}")


def _nodes_of(groups: Iterable[LockGroup]) -> list[NodeName]:
    return [node for group in groups for node in group.nodes]
