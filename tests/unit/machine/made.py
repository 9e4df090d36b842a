"""Machines with GPUs of other vendors, and their plans."""

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
    """A machine's files, architectures, plan or reason, and source."""

    files: Mapping[str, str]
    chips: tuple[str, ...]
    comes_to: str
    source: str


def variables(**values):
    """Return the variables of a machine in the format of recordings."""
    return {"environment.json": json.dumps(values)}


def read(folder, *files, **variables):
    """Return the machine with these files."""
    return read_machine(
        source=recording(folder, no_nvml(), no_libcuda(), *files, **variables)
    )


def planned(machine, backend=None, requirements=("torch",)):
    """Return the plan for a machine with the frozen catalog."""
    return choose(machine, Request(requirements, backend=backend), frozen_catalog())


def outcome(plan):
    """Return the build that a plan selects, or its first reason's code."""
    return plan.choice.build.name if plan.choice else plan.reasons[0].code
