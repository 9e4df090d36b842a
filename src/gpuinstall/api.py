"""The steps for authors of other programs: this machine, a lock, an environment, its proof; each call is one step."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.environments.environment import read_marker, read_origin
from gpuinstall.environments.paths import EnvironmentPaths, interpreter
from gpuinstall.install import install as installation
from gpuinstall.install import into
from gpuinstall.install.options import InstallOptions
from gpuinstall.learned.store import known_catalog
from gpuinstall.lock.folder_request import FolderRequest, read_own_lock, recorded_request
from gpuinstall.lock.inputs import spelled
from gpuinstall.lock.request import LockRequest
from gpuinstall.lock.strangers import with_locked_builds
from gpuinstall.lock.target import Target
from gpuinstall.lock.write import LockOptions, write_locks
from gpuinstall.probe import read_machine
from gpuinstall.reporter import SilentReporter
from gpuinstall.request import Request
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources
from gpuinstall.verify import verify_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.install.into import IntoResult
    from gpuinstall.install.options import InstallResult
    from gpuinstall.lock.write import Written
    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.session import Session
    from gpuinstall.verify import Verdict

TORCH = Request()
SILENT = SilentReporter()
TORCH_INDEX = "GPUINSTALL_TORCH_INDEX"


def install(
    venv: str | Path,
    request: Request = TORCH,
    *,
    machine: Machine | None = None,
    upgrade: bool = False,
    replacing: bool = False,
    torch_index: str | None = None,
    only_binary: bool = False,
    offline: bool = False,
    reporter: Reporter = SILENT,
) -> InstallResult:
    """Make the environment at ``venv`` hold what is asked for, proven on the GPUs; a lock lies beside it.

    A lock there that fits stays, unless ``upgrade`` is set. ``machine`` is another one to install for, which proves
    nothing here. ``replacing`` lets packages and folders be replaced that are not ours. Raise a GpuInstallError, and
    leave what is there as it was.
    """
    paths = EnvironmentPaths.at(Path(venv))
    meant, here = _machines(machine, request, reporter)
    existing = read_marker(paths.venv)
    preferred = (*((existing.python,) if existing else ()), *request.preferred_pythons)
    asked = replace(request, preferred_pythons=preferred)
    folder = _whole(request, paths.folder, paths.venv)
    options = InstallOptions(paths, meant, here, asked, folder, upgrade=upgrade, replace=replacing)
    with _session(paths.folder, torch_index, reporter, only_binary=only_binary, offline=offline) as (session, catalog):
        return installation.install(options, catalog, session)


def install_into(
    python: str | Path,
    request: Request = TORCH,
    *,
    machine: Machine | None = None,
    torch_index: str | None = None,
    only_binary: bool = False,
    offline: bool = False,
    reporter: Reporter = SILENT,
) -> IntoResult:
    """Put what is asked for into the environment of an interpreter that others made, proven on the GPUs.

    Raise a GpuInstallError, and leave the environment as it was.
    """
    meant, here = _machines(machine, request, reporter)
    options = into.IntoOptions(Path(python).absolute(), meant, here, request)
    with _session(Path(python).absolute().parent, torch_index, reporter, only_binary=only_binary, offline=offline) as (
        session,
        catalog,
    ):
        return into.install_into(options, catalog, session)


def lock(
    folder: str | Path,
    request: Request = TORCH,
    *,
    targets: Sequence[str] = (),
    machine: Machine | None = None,
    upgrade: bool = False,
    torch_index: str | None = None,
    only_binary: bool = False,
    offline: bool = False,
    reporter: Reporter = SILENT,
) -> list[Written]:
    """Write ``pylock.<target>.toml`` into a folder, for each target (``cu126``, ``cpu-windows-x86_64``) or one machine.

    Locks there that serve stay, unless ``upgrade`` is set. Raise a GpuInstallError.
    """
    place = Path(folder).absolute()
    with _session(place, torch_index, reporter, only_binary=only_binary, offline=offline) as (session, catalog):
        known = with_locked_builds(catalog, place, session)
        named = [LockRequest.for_target(Target.parse(target), request, known) for target in targets]
        wanted = named or [LockRequest(machine or read_machine(reporter), request, known, builds_here=machine is None)]
        return write_locks(LockOptions(place, tuple(wanted), _whole(request, place), upgrade=upgrade), session)


def _whole(request: Request, folder: Path, venv: Path | None = None) -> FolderRequest:
    """The request of a folder that asks for this alone."""
    own = read_own_lock(venv) if venv else None
    asked = FolderRequest(spelled(request.requirements), spelled(request.constraints))
    return asked.following(recorded_request(folder, own))


def verify(venv_or_python: str | Path, *, deep: bool = False, reporter: Reporter = SILENT) -> Verdict:
    """Run kernels on every GPU in any environment, by its folder or its interpreter; a failure is in the verdict.

    Raise UsageError where there is no interpreter.
    """
    path = Path(venv_or_python).absolute()
    python = interpreter(path) if path.is_dir() else path
    machine = read_machine(reporter)
    origin = read_origin(python.parent.parent, machine)
    return verify_environment(python, machine, asked_cpu=origin.for_cpu, gpus=origin.gpus, deep=deep, reporter=reporter)


def _machines(machine: Machine | None, request: Request, reporter: Reporter) -> tuple[Machine, Machine | None]:
    """The machine that is meant; and this one, where it is meant and has what the request is for."""
    meant = machine or read_machine(reporter)
    return meant, None if machine or (request.is_for_gpus and not meant.gpus) else meant


@contextmanager
def _session(
    folder: Path, torch_index: str | None, reporter: Reporter, *, only_binary: bool, offline: bool
) -> Iterator[tuple[Session, Catalog]]:
    """Open what a run uses, with the configuration of this machine, and that of pip and uv that counts in a folder."""
    sources = read_sources(torch_index or os.environ.get(TORCH_INDEX), os.environ, folder)
    catalog = replace(known_catalog(sources.torch_index), torch_index=sources.torch_index)
    with open_session(sources, reporter, offline=offline, only_binary=only_binary) as session:
        yield replace(session, folder=folder), catalog
