"""A scheduler's job, and the cards that it was given: no other may be touched. Pure."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.machine import Gpu

JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "SGE_TASK_ID", "COBALT_JOBID", "_CONDOR_SLOT")

_NAMES_A_DEVICE = re.compile(r"[0-9]+|(?:GPU|MIG)-.+")


def job_devices(environ: Mapping[str, str]) -> str | None:
    """The CUDA_VISIBLE_DEVICES of a scheduler's job; None outside a job, or where it narrows nothing."""
    return environ.get("CUDA_VISIBLE_DEVICES") if any(environ.get(name) for name in JOBS) else None


def is_given(devices: str, ordinal: int, gpu: Gpu, name: str) -> bool:
    """Say whether CUDA_VISIBLE_DEVICES names a card, or the slice ``name`` of it.

    It holds the beginnings of UUIDs, and ordinals among the cards that this process may open; the first entry that
    can be neither (``-1``, ``NoDevFiles``) ends it.
    """
    entries = tuple(takewhile(_NAMES_A_DEVICE.fullmatch, (entry.strip() for entry in devices.split(","))))
    return str(ordinal) in entries or any(uuid.startswith(entries) for uuid in (name, gpu.uuid or name))
