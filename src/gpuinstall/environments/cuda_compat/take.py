"""``--cuda-compat``: the libraries are looked for, fetched and tried; what does not help here is not kept."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpuinstall.base.errors import MachineError
from gpuinstall.base.files import make_private_folder, own_cache_folder
from gpuinstall.base.finding import Reason
from gpuinstall.base.in_use import scratch_folder
from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.environments.cuda_compat.libraries import (
    check_place,
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

    from gpuinstall.sources.session import Session

COMPAT_PLACE = "GPUINSTALL_CUDA_COMPAT_FROM"
"""The variable that names an archive, or a manifest, to take in place of NVIDIA's."""
_PACKAGE = "cuda-compat"


def take_libraries(
    given: str,
    locked: CompatArchive | None,
    folder: Path,
    *,
    session: Session,
    resources: ExitStack,
) -> MachineHere:
    """Fetch the libraries, try them, and return this machine with them; they are not kept yet.

    Args:
        given: The URL of an archive or of a manifest, or a path; empty: NVIDIA's own, or the one that was locked.
        locked: The archive that a lock of the folder was made with.
        folder: The folder of the environments that they are for.
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
            raise _unusable(reason, given)
        if not packages and not given:
            session.reporter.step(_PACKAGE, f"not used: {driver} serves CUDA {driver.cuda} itself")
            return MachineHere(machine)
    archive = locked
    if given or archive is None:
        place = given or os.environ.get(COMPAT_PLACE, "")
        archive = find_archive(place, packages or tables.compat, machine.arch, session)
    session.reporter.notice(_PACKAGE, str(archive))
    check_place(folder)
    # Programs are loaded from there, which a folder for temporary files may not allow.
    make_private_folder(own_cache_folder())
    work = resources.enter_context(scratch_folder(own_cache_folder()))
    libraries = fetch_libraries(archive, work / COMPAT_FOLDER, session)
    if not machine.gpus:
        # An image is built without GPUs: each start of a program decides.
        return MachineHere(machine, libraries)
    other = machine_with(libraries, machine, session.reporter)
    if isinstance(other, Reason):
        if other.code == "cuda-compat-not-newer":
            session.reporter.step(_PACKAGE, f"not used: {other.message}")
            return MachineHere(machine)
        raise _unusable(other, given)
    resources.enter_context(loaded_first(libraries.folder))
    return MachineHere(other, libraries)


def _unusable(reason: Reason, given: str) -> MachineError:
    option = "--cuda-compat-from" if given else "--cuda-compat"
    return MachineError(
        "cuda-compat-unusable",
        f"cuda-compat is not used here: {reason.message}",
        hint=f"Run it again without {option}",
    )
