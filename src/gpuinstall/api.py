"""Python API: select a build, write locks, install, and verify.

docs/api.md has examples and lists the stable names. Each function imports the modules
that it needs.
"""

from __future__ import annotations

import os
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base import values
from gpuinstall.base.advice import Advice
from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    environment_folder,
    interpreter,
)
from gpuinstall.base.errors import GpuInstallError, UsageError
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import (
    FOLDER_REQUEST,
    Request,
    Sourcing,
    parse_argument_values,
)
from gpuinstall.catalog import Catalog, load_catalog
from gpuinstall.machine.options import machine_from_options
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan import choose as choose_build

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.install.install import InstallResult
    from gpuinstall.lock.write import WrittenLock
    from gpuinstall.verify.verdict import Verdict

__all__ = [
    "Catalog",
    "GpuInstallError",
    "Machine",
    "Plan",
    "Rejected",
    "Reporter",
    "Request",
    "Sourcing",
    "choose",
    "install",
    "install_into",
    "load_catalog",
    "lock",
    "machine_from_options",
    "read_machine",
    "verify",
]

SILENT = Reporter()


def read_machine(reporter: Reporter = SILENT) -> Machine:
    """Read this machine, and store its faults in ``problems``."""
    from gpuinstall.machine import probe

    return probe.read_machine(reporter)


def choose(machine: Machine, request: Request, catalog: Catalog) -> Plan | Rejected:
    """Select the build of torch for a machine.

    Args:
        machine: The machine.
        request: The request. The extras are read from the working folder.
        catalog: The known builds.

    Raises:
        UsageError: The folder's pyproject.toml lacks an extra.
    """
    if request.extras:
        from gpuinstall.project.folder import add_extras

        request = add_extras(request, Path())
    return choose_build(machine, request, catalog)


def install(
    venv: str | Path,
    request: Request = FOLDER_REQUEST,
    *,
    upgrade: bool = False,
    replace: bool = False,
    reporter: Reporter = SILENT,
) -> InstallResult:
    """Install a request into a managed environment, and verify it on the GPUs.

    The lock is written into the folder that contains ``venv``, which may be a link.

    Args:
        venv: The environment, whose backend is kept.
        request: The complete request. Without requirements, the folder's request is
            used, as with ``gpuinstall install``.
        upgrade: Whether to update a lock that still fits.
        replace: Whether to replace an environment that gpuinstall did not create.
        reporter: Receives the progress.

    Raises:
        GpuInstallError: The installation failed. The previous environment is
            unchanged.
    """
    from gpuinstall.install import install as installation
    from gpuinstall.install.state import InstallOptions
    from gpuinstall.machine.pythons import select_base_python
    from gpuinstall.project import Settings, open_project
    from gpuinstall.project.folder import read_extras

    venv = Path(venv).absolute()
    request, base = select_base_python(request)
    settings = Settings(
        request,
        files=read_extras(venv.parent, request),
        only=bool(request.requirements),
        venv=venv,
        base_python=base,
    )
    with open_project(venv.parent, settings, reporter) as project:
        return installation.install(
            project, InstallOptions(replace=replace, upgrade=upgrade)
        )


def install_into(
    python: str | Path,
    request: Request = FOLDER_REQUEST,
    *,
    reporter: Reporter = SILENT,
) -> InstallResult:
    """Install into an unmanaged environment, and verify it on the GPUs.

    Args:
        python: The interpreter of the environment.
        request: The request, with extras of the project next to the environment.
            Without requirements, the last verified builds are requested, or torch
            if there are none.
        reporter: Receives the progress.

    Raises:
        GpuInstallError: The installation failed. The environment is unchanged.
    """
    from gpuinstall.install import install as installation
    from gpuinstall.install.state import InstallOptions
    from gpuinstall.project import Settings, open_project
    from gpuinstall.project.folder import read_extras

    path = Path(python).absolute()
    venv = environment_folder(path)
    settings = Settings(
        request,
        files=read_extras(venv.parent, request),
        is_unmanaged=True,
        venv=venv,
    )
    # The folder that contains the environment can belong to another project.
    with open_project(venv, settings, reporter) as project:
        return installation.install(project, InstallOptions(python=path, attempts=1))


def lock(
    folder: str | Path,
    request: Request = FOLDER_REQUEST,
    *,
    targets: str | Sequence[str] = (),
    machine: Machine | None = None,
    upgrade: bool = False,
    reporter: Reporter = SILENT,
) -> list[WrittenLock]:
    """Write ``pylock.<target>.toml`` for each target.

    Args:
        folder: The folder.
        request: The complete request. Without requirements, the folder's request is
            used, as with ``gpuinstall lock``.
        targets: The targets, such as ``cu126`` or ``cpu-windows-x86_64``. By default,
            the targets of the project or of its locks, unless ``machine`` is given.
        machine: The machine to lock for.
        upgrade: Whether to update locks that still fit.
        reporter: Receives the progress.

    Returns:
        The locks with their status.

    Raises:
        GpuInstallError: A lock cannot be resolved.
    """
    from gpuinstall.install.environment_lock import lock_files_mutex
    from gpuinstall.lock.write import WriteOptions, write_locks
    from gpuinstall.machine.pythons import select_base_python
    from gpuinstall.project import Settings, open_project
    from gpuinstall.project.folder import read_extras
    from gpuinstall.project.request import read_request
    from gpuinstall.project.targets import make_lock_requests

    names = parse_argument_values("targets", targets)
    if not os.path.isdir(folder):
        message = f"{folder} is not a folder"
        raise UsageError(
            "folder-missing", message, hint=Advice("mkdir", (str(folder),))
        )
    request, _ = select_base_python(request)
    place = Path(folder).absolute()
    settings = Settings(
        values.replace(request, targets=names),
        files=read_extras(place, request),
        only=bool(request.requirements),
        machine=machine,
        is_read_only=True,
    )
    with (
        lock_files_mutex(EnvironmentPaths.at(place / ".venv"), reporter),
        open_project(place, settings, reporter) as project,
    ):
        request = read_request(project)
        requests = make_lock_requests(project, request)
        return write_locks(
            requests,
            project.open_session(),
            project.contents.locks,
            project.lock_gate,
            WriteOptions(upgrade),
        )


def verify(
    venv_or_python: str | Path,
    *,
    deep: bool = False,
    reporter: Reporter = SILENT,
) -> Verdict:
    """Verify an environment by running kernels on every GPU.

    Args:
        venv_or_python: The environment, or its interpreter.
        deep: Whether to run more checks, as with ``gpuinstall verify --deep``.
        reporter: Receives the progress.

    Returns:
        The verdict, with failed checks.

    Raises:
        UsageError: The interpreter does not exist.
    """
    from gpuinstall.machine.probe import read_machine
    from gpuinstall.verify.runner import verify_environment

    path = Path(venv_or_python).absolute()
    python = interpreter(path) if isdir(path) else path
    machine = read_machine(reporter)
    return verify_environment(python, machine, deep=deep, reporter=reporter)
