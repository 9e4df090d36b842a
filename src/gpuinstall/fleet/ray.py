"""The engine ``ray``: one task a node, bound to it; the extra ``gpuinstall[ray]``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import UsageError
from gpuinstall.fleet.hostlist import chosen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CONNECT_S = 60


@dataclass(frozen=True)
class RayEngine:
    """``ids`` are Ray's own names of the nodes by ours; a node that has died is told by its task, not by a list."""

    ids: Mapping[str, str]
    name: str = "ray"

    def nodes(self, asked: Sequence[str] | None) -> dict[str, str]:
        """Name the nodes."""
        return chosen(asked, {node: f"ray {identity[:8]}" for node, identity in self.ids.items()})

    def run_each(self, command: Sequence[str], nodes: Sequence[str], seconds: float) -> str:
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

    def run_together(self, command: Sequence[str], nodes: Sequence[str], seconds: float) -> str:
        """The same: tasks that need no resources all start at once."""
        return self.run_each(command, nodes, seconds)


def open_ray() -> RayEngine:
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
            said = str(error).splitlines()[0]
            hint = "ray start --head   here, or RAY_ADDRESS=host:port of the cluster's head"
            raise UsageError("no-ray-cluster", f"there is no Ray cluster to join: {said}", hint=hint) from None
    return RayEngine(_named(ray.nodes()))


def _named(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Name the living nodes by Ray's name of them, with the beginning of their id where two have the same."""
    alive = [row for row in rows if row.get("Alive")]
    names = [str(row.get("NodeName") or row["NodeManagerHostname"]) for row in alive]
    pairs = [(name, str(row["NodeID"])) for name, row in zip(names, alive, strict=True)]
    return {name if names.count(name) == 1 else f"{name}-{identity[:8]}": identity for name, identity in pairs}


def _printed(reference: Any) -> str:
    import ray

    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError:
        return ""
