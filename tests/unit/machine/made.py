"""Machines of other makers than NVIDIA: read from made files, and planned for."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from gpuinstall.api import choose
from gpuinstall.base.request import Request
from gpuinstall.machine.probe import read_machine
from tests.frozen import frozen_catalog
from tests.lab.recorded import no_libcuda, no_nvml, recording

DOCKER = {
    "/.dockerenv": "",
    "own-mounts.txt": "636 620 254:1 /docker/containers/4c01/hosts /etc/hosts rw - ext4 /dev/vda1 rw\n",
}


class Made(NamedTuple):
    """A machine by its files; the code of its GPUs, the build that is chosen (or the first reason), the source."""

    files: Mapping[str, str]
    chips: tuple[str, ...]
    comes_to: str
    source: str


def variables(**values):
    """Return the variables of a machine, as its recording has them."""
    return {"environment.json": json.dumps(values)}


def read(folder, *files, **variables):
    """Return the machine that these files show, one without a driver of NVIDIA's unless they have it."""
    return read_machine(
        source=recording(folder, no_nvml(), no_libcuda(), *files, **variables)
    )


def planned(machine, backend=None, requirements=("torch",)):
    """Return the plan for a machine, on the catalogue that stands still."""
    return choose(machine, Request(requirements, backend=backend), frozen_catalog())


def outcome(plan):
    """Return the build that a plan chooses, or the code of its first reason."""
    return plan.choice.build.name if plan.choice else plan.reasons[0].code
