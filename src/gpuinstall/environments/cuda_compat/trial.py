"""This machine with the libraries of cuda-compat above its driver, if they count here: decided anew by each command.

The system's libcuda and theirs are asked in a child each; then a kernel has to run on every GPU.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.finding import Reason
from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.environments.cuda_compat.libraries import (
    CompatLibraries,
    are_as_unpacked,
    libraries_beside,
)
from gpuinstall.environments.environment import fingerprint
from gpuinstall.environments.records import is_vouched, remember
from gpuinstall.machine.nvidia.compat import compat_rejection
from gpuinstall.machine.nvidia.libraries import COMPAT_FOLDER, ask_libcuda_in, with_compat
from gpuinstall.machine.probe import preflight, read_machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter


class MachineHere(NamedTuple):
    """This machine, as programs see it that are started here."""

    machine: Machine
    libraries: CompatLibraries | None = None
    """What they load before the system's libraries."""


@contextmanager
def loaded_first(folder: Path | None) -> Iterator[None]:
    """Have children load the libraries of a folder first; with None, the system's own."""
    before = os.environ.get("LD_LIBRARY_PATH")
    changed = with_compat(os.environ, folder).get("LD_LIBRARY_PATH")
    _set(changed)
    try:
        yield
    finally:
        _set(before)


def _set(folders: str | None) -> None:
    os.environ.pop("LD_LIBRARY_PATH", None)
    if folders is not None:
        os.environ["LD_LIBRARY_PATH"] = folders


@contextmanager
def machine_beside(
    folder: Path,
    reporter: Reporter,
    *,
    starts: bool = False,
) -> Iterator[MachineHere]:
    """Yield this machine, with the libraries that lie in a folder of environments if they count here.

    Children load them first until it ends.

    Args:
        folder: The folder.
        reporter: Is told why they do not count.
        starts: Whether environments of the folder are started: their libraries may have come with them, in an image.
    """
    libraries = libraries_beside(folder)
    if libraries is None or not (starts or are_as_unpacked(libraries)):
        place = folder / COMPAT_FOLDER
        if place.is_dir():
            reporter.step("cuda-compat", f"off: {place} was not unpacked there for this user")
        yield MachineHere(read_machine(reporter))
        return
    with loaded_first(None):
        machine = read_machine(reporter)
    if not machine.gpus:
        # A login node: nothing here would load them.
        yield MachineHere(machine)
        return
    other = machine_with(libraries, machine, reporter)
    if isinstance(other, Reason):
        reporter.step("cuda-compat", f"off: {other.message}")
        with loaded_first(None):
            yield MachineHere(machine)
    else:
        with loaded_first(libraries.folder):
            yield MachineHere(other, libraries)


def machine_with(
    libraries: CompatLibraries,
    machine: Machine,
    reporter: Reporter,
) -> Machine | Reason:
    """Return this machine as programs see it with the libraries, or why they are not used."""
    environments = (with_compat(os.environ, None), with_compat(os.environ, libraries.folder))
    system, above = ask_libcuda_in(environments)
    reason = compat_rejection(machine, system, above, load_drivers(), os.environ)
    if reason:
        return reason
    with loaded_first(libraries.folder):
        other = read_machine(reporter)
        identity = f"{libraries.id}:{fingerprint(other)}"
        if is_vouched(libraries.record, identity):
            return other
        proof = preflight(other, reporter)
    faults = [problem for problem in (*other.problems, *proof.problems) if problem.blocking]
    for fault in faults:
        return Reason("cuda-compat-fails", f"{fault.message} with it ({fault.evidence})")
    if proof.cards:
        reporter.step("cuda-compat", f"{libraries.driver}: {proof.summary}", proof.seconds)
    if not proof.with_outcome("unproven"):
        remember(libraries.record, identity)
    return other
