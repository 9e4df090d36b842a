"""What carries a command to the nodes: Slurm, Ray or this machine.

Results never come through it, but as records.

``slurm`` is a step of srun, in the allocation that is there or in one of its own; what a site needs
(partition, account, reservation) stands in srun's own variables, such as SLURM_PARTITION. ``ray``
is one task a node, bound to it, by the extra ``gpuinstall[ray]``. ``local`` makes every node a
process of this machine: for a big one, and for tests.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from gpuinstall import process
from gpuinstall.errors import UsageError
from gpuinstall.fleet.hostlist import NodeName, chosen, compress, expand
from gpuinstall.fleet.run_folder import this_node
from gpuinstall.values import dataclass

NODES = "GPUINSTALL_LOCAL_NODES"
ASK_S = 30.0
QUEUE_S = 3600.0
"""How long a step outside an allocation may wait for its nodes before its own time begins."""
_UNUSABLE = (
    "down",
    "drain",
    "fail",
    "no_respond",
    "not_responding",
    "unk",
    "power",
    "reboot",
    "maint",
    "inval",
)
"""What the states of nodes that take no step contain."""


class Engine(Protocol):
    """A launcher that is there already. What it says of its success is not believed."""

    def nodes(self, wanted: Sequence[str] | None) -> Mapping[NodeName, str]:
        """Return the selected nodes, each with what the engine says of it.

        Args:
            wanted: The selected nodes; None: all of the engine's own.

        Raises:
            UsageError: if it has no such node, or cannot tell which are its own.
        """

    def run(
        self,
        command: Sequence[str],
        nodes: Sequence[NodeName],
        seconds: float,
        *,
        together: bool = False,
    ) -> str:
        """Run a command once on each node that the engine can reach; return what they printed.

        Args:
            seconds: The end for all that still run.
            together: Whether the nodes wait for each other, so that all must run at one time.
        """


def open_engine(name: str) -> Engine:
    """Return an engine by its name; raise UsageError if it is not here."""
    openers: Mapping[str, Callable[[], Engine]] = {
        "slurm": _open_slurm,
        "ray": _open_ray,
        "local": _open_local,
    }
    if name not in openers:
        message = f"{name or 'nothing'} is not a known engine"
        names = "|".join(openers)
        hint = f"Use --engine {names}; docs/fleet.md shows how to use any other launcher"
        raise UsageError(
            "engine-unknown",
            message,
            hint=hint,
        )
    return openers[name]()


def own_program() -> list[str]:
    """Return the command line that started us, up to our own arguments: the nodes run the same."""
    own = len(sys.argv) - 1
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - own]]


@dataclass(frozen=True)
class SlurmEngine:
    """Slurm, by srun and sinfo."""

    allocated: tuple[str, ...] | None = None
    """The nodes of the allocation that we are in; None outside of one."""

    def nodes(self, wanted: Sequence[str] | None) -> dict[NodeName, str]:
        """Return the selected nodes, or those of the allocation, with state, GRES and features."""
        hints = self._sinfo("%N|%T|%G|%f")
        if self.allocated is not None:
            hints = {node: hints.get(node, "") for node in self.allocated}
        elif wanted is None:
            message = "not inside a Slurm allocation, and --nodes is not given"
            hint = f"salloc -N4 --exclusive, or --nodes; Slurm has {compress(hints)}"
            raise UsageError(
                "no-allocation",
                message,
                hint=hint,
            )
        return chosen(wanted, hints)

    def run(
        self,
        command: Sequence[str],
        nodes: Sequence[NodeName],
        seconds: float,
        *,
        together: bool = False,  # noqa: ARG002  all tasks start at once
    ) -> str:
        """Run one task on each node that is up; a node that is lost takes no other with it."""
        up = self._usable(nodes)
        if not up:
            return ""
        words = [
            "srun",
            # srun's status says 0 for a job that has lost a node (seen in 22.05): records count.
            "--no-kill",
            "--kill-on-bad-exit=0",
            "--wait=0",
            "--export=ALL",
            "--unbuffered",
            "--quiet",
            f"--nodelist={compress(up)}",
            f"--nodes={len(up)}",
            f"--ntasks={len(up)}",
            "--ntasks-per-node=1",
        ]
        if self.allocated is None:
            minutes = max(1, -int(-seconds // 60))
            words += ["--exclusive", f"--time={minutes}"]
            seconds += QUEUE_S
        else:
            words += ["--overlap"]
        return process.run([*words, *command], seconds=seconds).out

    def _usable(self, nodes: Sequence[NodeName]) -> list[NodeName]:
        """Return the nodes that Slurm does not call down: for the others a step waits for ever."""
        states = self._sinfo("%N|%T")
        usable = []
        for node in nodes:
            state = states.get(node, "")
            if not any(word in state for word in _UNUSABLE):
                usable.append(node)
        return usable

    def _sinfo(self, form: str) -> dict[str, str]:
        done = process.run(["sinfo", "--noheader", "--Node", f"--format={form}"], seconds=ASK_S)
        if not done.ok:
            last = (done.err.strip() or "no answer").splitlines()[-1]
            message = f"Slurm's controller does not answer: {last}"
            raise UsageError(
                "slurm-silent",
                message,
                hint="sinfo",
            )
        hints = {}
        for line in filter(str.strip, done.out.splitlines()):
            node, _, columns = line.partition("|")
            words = columns.replace("(null)", "").replace("|", " ")
            hints[node.strip()] = words.lower().strip()
        return hints


@dataclass(frozen=True)
class RayEngine:
    """Ray; a node that has died is told by its task, not by a list."""

    ids: Mapping[str, str]
    """Ray's own names of the nodes by ours."""

    def nodes(self, wanted: Sequence[str] | None) -> dict[NodeName, str]:
        """Return the selected nodes, or all."""
        return chosen(wanted, {node: f"ray {identity[:8]}" for node, identity in self.ids.items()})

    def run(
        self,
        command: Sequence[str],
        nodes: Sequence[NodeName],
        seconds: float,
        *,
        together: bool = False,  # noqa: ARG002  all tasks start at once
    ) -> str:
        """Run one task on each node; one whose node is gone fails alone."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        def start(
            words: list[str],
            node: str,
            limit: float,
        ) -> str:
            import os
            import subprocess

            variables = dict(os.environ)
            # Ray sets it to nothing in a task that asks for no GPU.
            if not variables.get("CUDA_VISIBLE_DEVICES"):
                variables.pop("CUDA_VISIBLE_DEVICES", None)
            try:
                done = subprocess.run(
                    words,
                    env={**variables, "GPUINSTALL_NODE": node},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=limit,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return ""
            return done.stdout

        # Closures travel by value: a worker needs no gpuinstall of its own to unpack this one.
        task = ray.remote(num_cpus=0, num_gpus=0, max_retries=0)(start)
        waiting = []
        for node in nodes:
            bound = NodeAffinitySchedulingStrategy(node_id=self.ids[node], soft=False)
            own_task = task.options(scheduling_strategy=bound)
            waiting.append(own_task.remote([*command], node, seconds))
        ready, rest = ray.wait(
            waiting,
            num_returns=len(waiting),
            timeout=seconds,
        )
        for reference in rest:
            ray.cancel(reference, force=True)
        return "".join(map(_printed, ready))


@dataclass(frozen=True)
class LocalEngine:
    """Nodes that are processes of this machine."""

    variables: Mapping[str, Mapping[str, str] | None]
    """What each node has in its environment beside ours; None: it is down."""
    at_once: int = field(default_factory=lambda: os.cpu_count() or 1)

    def nodes(self, wanted: Sequence[str] | None) -> dict[NodeName, str]:
        """Return the selected nodes, or all."""
        return chosen(wanted, dict.fromkeys(self.variables, ""))

    def run(
        self,
        command: Sequence[str],
        nodes: Sequence[NodeName],
        seconds: float,
        *,
        together: bool = False,
    ) -> str:
        """Run as many processes at once as there are processors, or all."""

        def run(node: str) -> str:
            own = self.variables.get(node, {})
            if own is None:
                return ""
            variables = {**os.environ, "GPUINSTALL_NODE": node, **own}
            return process.run(command, env=variables, seconds=seconds).out

        at_once = len(nodes) if together else self.at_once
        with ThreadPoolExecutor(max(1, at_once)) as pool:
            return "".join(pool.map(run, nodes))


def _open_slurm() -> SlurmEngine:
    """Find srun, and the allocation that we are in; raise UsageError if there is no srun."""
    if process.find_program("srun") is None or process.find_program("sinfo") is None:
        message = "srun not found: this machine is not part of a Slurm cluster"
        hint = "Log in to a node that submits jobs, or use this machine alone: --engine local"
        raise UsageError(
            "no-srun",
            message,
            hint=hint,
        )
    nodes = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST")
    if nodes and os.environ.get("SLURM_JOB_ID"):
        return SlurmEngine(expand(nodes))
    return SlurmEngine()


def _open_ray() -> RayEngine:
    """Join the cluster that RAY_ADDRESS names, or the one on this machine; raise UsageError."""
    # Else the working folder is sent to every worker.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    try:
        import ray
    except ImportError:
        place = "in the environment of gpuinstall (its extra is called ray)"
        hint = f"pip install 'ray[default]' {place}"
        raise UsageError(
            "no-ray",
            "the engine ray needs the package ray",
            hint=hint,
        ) from None
    # What Ray hears of its nodes it prints at any time: our result keeps its own stream.
    sys.stdout = sys.stderr
    if not ray.is_initialized():
        try:
            ray.init(
                address=os.environ.get("RAY_ADDRESS", "auto"),
                log_to_driver=False,
                logging_level="ERROR",
                configure_logging=False,
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            reason = str(error).splitlines()[0]
            hint = "ray start --head   # here, or set RAY_ADDRESS=host:port of the cluster's head"
            message = f"no Ray cluster found: {reason}"
            raise UsageError(
                "no-ray-cluster",
                message,
                hint=hint,
            ) from None
    return RayEngine(_ray_names(ray.nodes()))


def _ray_names(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return Ray's id of each living node by its name, made unique by the id if two share it."""
    ids: dict[str, list[str]] = {}
    for row in rows:
        if row.get("Alive"):
            name = str(row.get("NodeName") or row["NodeManagerHostname"])
            ids.setdefault(name, []).append(str(row["NodeID"]))
    names = {}
    for name, own_ids in ids.items():
        for identity in own_ids:
            unique = name if len(own_ids) == 1 else f"{name}-{identity[:8]}"
            names[unique] = identity
    return names


def _open_local() -> LocalEngine:
    """Read the nodes from the file that GPUINSTALL_LOCAL_NODES names, else take this machine."""
    path = os.environ.get(NODES)
    if path is None:
        return LocalEngine({this_node(os.environ): {}})
    try:
        return LocalEngine(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        message = f"{path} ({NODES}) cannot be read: {error}"
        hint = '{"node": {"VARIABLE": "value"}}'
        raise UsageError(
            "nodes-malformed",
            message,
            hint=hint,
        ) from None


def _printed(reference: Any) -> str:
    import ray

    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError:
        return ""
