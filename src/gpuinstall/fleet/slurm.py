"""The engine ``slurm``: a step of srun, in the allocation that is there or in one of its own.

What a site needs (partition, account, reservation) is said in srun's own variables, such as SLURM_PARTITION.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall import process
from gpuinstall.errors import UsageError
from gpuinstall.fleet.hostlist import chosen, compress, expand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ASK_S = 30.0
QUEUE_S = 3600.0
"""How long a step outside an allocation may wait for its nodes before its own time begins."""
_UNUSABLE = ("down", "drain", "fail", "no_respond", "not_responding", "unk", "power", "reboot", "maint", "inval")


@dataclass(frozen=True)
class SlurmEngine:
    """``allocated`` are the nodes of the allocation that we are in, None outside of one."""

    allocated: tuple[str, ...] | None = None
    name: str = "slurm"

    def nodes(self, asked: Sequence[str] | None) -> dict[str, str]:
        """The nodes that are asked for, or those of the allocation; with their state, GRES and features as hints."""
        said = self._asked("%N|%T|%G|%f")
        if self.allocated is not None:
            said = {node: said.get(node, "") for node in self.allocated}
        elif asked is None:
            hint = f"salloc -N4 --exclusive, or --nodes; Slurm has {compress(said)}"
            raise UsageError("no-allocation", "we are in no allocation of Slurm, and --nodes names no node", hint=hint)
        return chosen(asked, said)

    def run_each(self, command: Sequence[str], nodes: Sequence[str], seconds: float) -> str:
        """Run one task on each node that is up; a node that is lost takes no other with it."""
        up = self._up(nodes)
        if not up:
            return ""
        where = [f"--nodelist={compress(up)}", f"--nodes={len(up)}", f"--ntasks={len(up)}", "--ntasks-per-node=1"]
        inside = ["--overlap"] if self.allocated is not None else ["--exclusive", f"--time={_minutes(seconds)}"]
        # srun's status says 0 for a job that has lost a node (seen in 22.05): what counts are the records.
        flags = ["--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--unbuffered", "--quiet"]
        queue = 0.0 if self.allocated is not None else QUEUE_S
        return process.run(["srun", *flags, *inside, *where, *command], seconds=seconds + queue).out

    def run_together(self, command: Sequence[str], nodes: Sequence[str], seconds: float) -> str:
        """The same: srun starts all tasks of a step at one time."""
        return self.run_each(command, nodes, seconds)

    def _up(self, nodes: Sequence[str]) -> list[str]:
        """Leave out the nodes that Slurm itself calls down: a step would wait for them for ever."""
        states = self._asked("%N|%T")
        return [node for node in nodes if not any(word in states.get(node, "") for word in _UNUSABLE)]

    def _asked(self, form: str) -> dict[str, str]:
        """What sinfo says of each node."""
        done = process.run(["sinfo", "--noheader", "--Node", f"--format={form}"], seconds=ASK_S)
        if not done.ok:
            said = (done.err.strip() or "no answer").splitlines()[-1]
            raise UsageError("slurm-silent", f"Slurm's controller does not answer: {said}", hint="sinfo")
        rows = (line.partition("|") for line in done.out.splitlines() if line.strip())
        return {node.strip(): " ".join(rest.replace("(null)", "").split("|")).lower().strip() for node, _, rest in rows}


def open_slurm(environ: Mapping[str, str] = os.environ) -> SlurmEngine:
    """Find srun, and the allocation that we are in; raise UsageError where there is no srun."""
    if shutil.which("srun") is None or shutil.which("sinfo") is None:
        hint = "log in to a node that submits jobs; for this machine alone: --engine local"
        raise UsageError("no-srun", "there is no srun here: this machine is no part of a Slurm cluster", hint=hint)
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    inside = environ.get("SLURM_JOB_ID") and listed
    return SlurmEngine(expand(listed) if inside and listed else None)


def _minutes(seconds: float) -> int:
    return max(1, -int(-seconds // 60))
