"""What carries a command to the nodes: Slurm, Ray or this machine; results never come through it, but as records.

``slurm`` is a step of srun, in the allocation that is there or in one of its own; what a site needs (partition,
account, reservation) is said in srun's own variables, such as SLURM_PARTITION. ``ray`` is one task a node, bound to it,
by the extra ``gpuinstall[ray]``. ``local`` makes every node a process of this machine: for a big one, and for tests.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gpuinstall import process
from gpuinstall.errors import UsageError
from gpuinstall.fleet.hostlist import NodeName, chosen, compress, expand
from gpuinstall.fleet.run_folder import this_node

NODES = "GPUINSTALL_LOCAL_NODES"
ASK_S = 30.0
QUEUE_S = 3600.0
"""How long a step outside an allocation may wait for its nodes before its own time begins."""
_UNUSABLE = ("down", "drain", "fail", "no_respond", "not_responding", "unk", "power", "reboot", "maint", "inval")


class Engine(Protocol):
    """A launcher that is there already. What it says of its success is not believed."""

    def nodes(self, wanted: Sequence[str] | None) -> Mapping[NodeName, str]:
        """The nodes that are meant (None: all of its own), each with what it says of it, "" for nothing.

        Raise UsageError where it has no such node, or cannot say which are meant.
        """

    def run(self, command: Sequence[str], nodes: Sequence[NodeName], seconds: float, *, together: bool = False) -> str:
        """Run a command once on each node that it can reach, at one time where they wait for each other.

        Return what they printed; no end within ``seconds`` is the end for all that still run.
        """


def open_engine(name: str) -> Engine:
    """Open an engine by its name; raise UsageError where it is not here."""
    openers: Mapping[str, Callable[[], Engine]] = {"slurm": _open_slurm, "ray": _open_ray, "local": _open_local}
    if name not in openers:
        hint = f"Use --engine {'|'.join(openers)}; docs/fleet.md shows how to use any other launcher"
        raise UsageError("engine-unknown", f"{name or 'nothing'} is not a known engine", hint=hint)
    return openers[name]()


def own_program() -> list[str]:
    """The command line that started us, up to our own arguments: what the nodes run is the very same."""
    own = len(sys.argv) - 1
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - own]]


@dataclass(frozen=True)
class SlurmEngine:
    """``allocated`` are the nodes of the allocation that we are in, None outside of one."""

    allocated: tuple[str, ...] | None = None

    def nodes(self, wanted: Sequence[str] | None) -> dict[NodeName, str]:
        """The nodes that are asked for, or those of the allocation; with their state, GRES and features as hints."""
        hints = self._sinfo("%N|%T|%G|%f")
        if self.allocated is not None:
            hints = {node: hints.get(node, "") for node in self.allocated}
        elif wanted is None:
            hint = f"salloc -N4 --exclusive, or --nodes; Slurm has {compress(hints)}"
            raise UsageError("no-allocation", "not inside a Slurm allocation, and --nodes is not given", hint=hint)
        return chosen(wanted, hints)

    def run(self, command: Sequence[str], nodes: Sequence[NodeName], seconds: float, *, together: bool = False) -> str:  # noqa: ARG002  all tasks start at once
        """Run one task on each node that is up; a node that is lost takes no other with it."""
        # A step would wait for ever for the nodes that Slurm itself calls down.
        states = self._sinfo("%N|%T")
        up = [node for node in nodes if not any(word in states.get(node, "") for word in _UNUSABLE)]
        if not up:
            return ""
        where = [f"--nodelist={compress(up)}", f"--nodes={len(up)}", f"--ntasks={len(up)}", "--ntasks-per-node=1"]
        alone = ["--exclusive", f"--time={max(1, -int(-seconds // 60))}"]
        inside = alone if self.allocated is None else ["--overlap"]
        # srun's status says 0 for a job that has lost a node (seen in 22.05): what counts are the records.
        flags = ["--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--unbuffered", "--quiet"]
        queue = 0.0 if self.allocated is not None else QUEUE_S
        return process.run(["srun", *flags, *inside, *where, *command], seconds=seconds + queue).out

    def _sinfo(self, form: str) -> dict[str, str]:
        done = process.run(["sinfo", "--noheader", "--Node", f"--format={form}"], seconds=ASK_S)
        if not done.ok:
            last = (done.err.strip() or "no answer").splitlines()[-1]
            raise UsageError("slurm-silent", f"Slurm's controller does not answer: {last}", hint="sinfo")
        rows = (line.partition("|") for line in done.out.splitlines() if line.strip())
        return {node.strip(): " ".join(rest.replace("(null)", "").split("|")).lower().strip() for node, _, rest in rows}


@dataclass(frozen=True)
class RayEngine:
    """``ids`` are Ray's own names of the nodes by ours; a node that has died is told by its task, not by a list."""

    ids: Mapping[str, str]

    def nodes(self, wanted: Sequence[str] | None) -> dict[NodeName, str]:
        """Name the nodes."""
        return chosen(wanted, {node: f"ray {identity[:8]}" for node, identity in self.ids.items()})

    def run(self, command: Sequence[str], nodes: Sequence[NodeName], seconds: float, *, together: bool = False) -> str:  # noqa: ARG002  all tasks start at once
        """Run one task on each node; one whose node is gone fails alone."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        def start(words: list[str], node: str, limit: float) -> str:
            import os
            import subprocess

            own = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES" or value}
            try:
                done = subprocess.run(
                    words,
                    env={**own, "GPUINSTALL_NODE": node},
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
            waiting.append(task.options(scheduling_strategy=bound).remote([*command], node, seconds))
        ready, rest = ray.wait(waiting, num_returns=len(waiting), timeout=seconds)
        for reference in rest:
            ray.cancel(reference, force=True)
        return "".join(_printed(reference) for reference in ready)


@dataclass(frozen=True)
class LocalEngine:
    """``variables`` are what each node has in its environment beside ours; None: it is down."""

    variables: Mapping[str, Mapping[str, str] | None]
    at_once: int = field(default_factory=lambda: os.cpu_count() or 1)

    def nodes(self, wanted: Sequence[str] | None) -> dict[NodeName, str]:
        """Name the nodes."""
        return chosen(wanted, dict.fromkeys(self.variables, ""))

    def run(self, command: Sequence[str], nodes: Sequence[NodeName], seconds: float, *, together: bool = False) -> str:
        """Run as many processes at once as there are processors, or all."""

        def run(node: str) -> str:
            more = self.variables.get(node, {})
            if more is None:
                return ""
            return process.run(command, env={**os.environ, "GPUINSTALL_NODE": node, **more}, seconds=seconds).out

        with ThreadPoolExecutor(max(1, len(nodes) if together else self.at_once)) as pool:
            return "".join(pool.map(run, nodes))


def _open_slurm() -> SlurmEngine:
    """Find srun, and the allocation that we are in; raise UsageError where there is no srun."""
    if process.find_program("srun") is None or process.find_program("sinfo") is None:
        hint = "Log in to a node that submits jobs, or use this machine alone: --engine local"
        raise UsageError("no-srun", "srun not found: this machine is not part of a Slurm cluster", hint=hint)
    listed = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST")
    inside = os.environ.get("SLURM_JOB_ID") and listed
    return SlurmEngine(expand(listed) if inside and listed else None)


def _open_ray() -> RayEngine:
    """Join the cluster that RAY_ADDRESS names, or the one on this machine; raise UsageError where there is none."""
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")  # else the working folder is sent to every worker
    try:
        import ray
    except ImportError:
        hint = "pip install 'ray[default]' in the environment of gpuinstall (its extra is called ray)"
        raise UsageError("no-ray", "the engine ray needs the package ray", hint=hint) from None
    sys.stdout = sys.stderr  # what Ray hears of its nodes it prints at any time: our result keeps its own stream
    if not ray.is_initialized():
        try:
            address = os.environ.get("RAY_ADDRESS", "auto")
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            reason = str(error).splitlines()[0]
            hint = "ray start --head   # here, or set RAY_ADDRESS=host:port of the cluster's head"
            raise UsageError("no-ray-cluster", f"no Ray cluster found: {reason}", hint=hint) from None
    # Ray's name of each living node, with the beginning of its id where two have the same.
    alive = [row for row in ray.nodes() if row.get("Alive")]
    names = [str(row.get("NodeName") or row["NodeManagerHostname"]) for row in alive]
    pairs = [(name, str(row["NodeID"])) for name, row in zip(names, alive, strict=True)]
    return RayEngine({name if names.count(name) == 1 else f"{name}-{own[:8]}": own for name, own in pairs})


def _open_local() -> LocalEngine:
    """The nodes that the file named by GPUINSTALL_LOCAL_NODES describes, or this machine; raise UsageError."""
    path = os.environ.get(NODES)
    if path is None:
        return LocalEngine({this_node(os.environ): {}})
    try:
        return LocalEngine(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        message = f"{path} ({NODES}) cannot be read: {error}"
        raise UsageError("nodes-malformed", message, hint='{"node": {"VARIABLE": "value"}}') from None


def _printed(reference: Any) -> str:
    import ray

    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError:
        return ""
