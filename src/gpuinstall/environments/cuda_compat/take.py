"""``--cuda-compat``: the libraries are looked for, fetched and tried; what does not help here is not kept."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpuinstall.base.errors import MachineError
from gpuinstall.base.finding import Reason
from gpuinstall.base.values import dataclass
from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.environments.cuda_compat.libraries import (
    CompatLibraries,
    keep_libraries,
    unpacking_folder,
)
from gpuinstall.environments.cuda_compat.package import CompatArchive, fetch_libraries, find_archive
from gpuinstall.environments.cuda_compat.trial import MachineHere, loaded_first, machine_with
from gpuinstall.machine.nvidia.compat import unsupported
from gpuinstall.machine.nvidia.driver import MachineDriver
from gpuinstall.machine.nvidia.libraries import COMPAT_FOLDER
from gpuinstall.machine.probe import read_machine

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.catalog.drivers import CompatPackage
    from gpuinstall.sources.session import Session

COMPAT_PLACE = "GPUINSTALL_CUDA_COMPAT_FROM"
"""The variable that names an archive, or a manifest, to take in place of NVIDIA's."""
_PACKAGE = "cuda-compat"


@dataclass(frozen=True)
class CompatRequest:
    """The libraries that a user asks for."""

    given: str
    """The URL of an archive or of a manifest, or a path; empty: NVIDIA's own, or the one that was locked."""
    locked: CompatArchive | None
    """The archive that a lock of the folder was made with."""
    folder: Path
    """The folder of the environments that they are for."""


def take_libraries(
    request: CompatRequest,
    session: Session,
    resources: ExitStack,
) -> MachineHere:
    """Fetch the libraries, try them, and return this machine with them; they are not kept yet.

    Args:
        request: Where they are.
        session: Fetches.
        resources: As long as they are open, children load the libraries; what was not kept goes with them.

    Returns:
        The machine with its own driver if that serves as much.

    Raises:
        MachineError: They cannot be used here.
        InstallationError: They cannot be had.
    """
    tables = load_drivers()
    resources.enter_context(loaded_first(None))
    machine = read_machine(session.reporter)
    driver = MachineDriver(machine, tables)
    packages = tuple(driver.compat_packages())
    if machine.gpus:
        reason = unsupported(machine, tables)
        if reason:
            raise _unusable(reason, request)
        if not packages and not request.given:
            session.reporter.step(_PACKAGE, f"not used: {driver} serves CUDA {driver.cuda} itself")
            return MachineHere(machine)
    archive = _archive(request, machine, packages or tables.compat, session)
    session.reporter.notice(_PACKAGE, str(archive))
    work = resources.enter_context(unpacking_folder(request.folder))
    libraries = fetch_libraries(archive, work / COMPAT_FOLDER, session)
    if not machine.gpus:
        # An image is built without GPUs: each start of a program decides.
        return MachineHere(machine, libraries)
    other = machine_with(libraries, machine, session.reporter)
    if isinstance(other, Reason):
        if other.code == "cuda-compat-not-newer":
            session.reporter.step(_PACKAGE, f"not used: {other.message}")
            return MachineHere(machine)
        raise _unusable(other, request)
    resources.enter_context(loaded_first(libraries.folder))
    return MachineHere(other, libraries)


def _archive(
    request: CompatRequest,
    machine: Machine,
    packages: tuple[CompatPackage, ...],
    session: Session,
) -> CompatArchive:
    place = request.given
    if not place:
        if request.locked:
            return request.locked
        place = os.environ.get(COMPAT_PLACE, "")
    return find_archive(place, packages, machine.arch, session)


def _unusable(reason: Reason, request: CompatRequest) -> MachineError:
    option = "--cuda-compat-from" if request.given else "--cuda-compat"
    return MachineError(
        "cuda-compat-unusable",
        f"cuda-compat is not used here: {reason.message}",
        hint=f"Run it again without {option}",
    )


def keep_taken(libraries: CompatLibraries, folder: Path) -> None:
    """Keep libraries that were taken, now that an environment is proven with them."""
    if libraries.folder != folder / COMPAT_FOLDER:
        keep_libraries(libraries, folder / COMPAT_FOLDER)
