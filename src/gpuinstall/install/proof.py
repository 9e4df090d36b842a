"""Verify an installation by running GPU kernels."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from os.path import isfile
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpuinstall.base import process
from gpuinstall.base.advice import Hint, make_command
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError, VerificationError
from gpuinstall.base.finding import CheckResult
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.text import join_names
from gpuinstall.base.values import Value, field, replace
from gpuinstall.catalog import Build, Catalog
from gpuinstall.environments.environment import Origin
from gpuinstall.environments.stamp import Stamp
from gpuinstall.lock.file.fit import CompatibleLock
from gpuinstall.machine.children import describe_end

if TYPE_CHECKING:
    from gpuinstall.install.state import InstallState
    from gpuinstall.verify.verdict import Verdict


_OTHER_BUILDS = "lists the other builds; select one with --backend"


class KernelFailedError(VerificationError):
    """Failed GPU kernel, with the ``verdict`` and the lock file.

    Args:
        fit: The lock file of the environment.
        verdict: The verdict.
        changed: The changed packages, if torch is not one of them and passed before.
    """

    def __init__(
        self, fit: CompatibleLock, verdict: Verdict, changed: Iterable[str] = ()
    ) -> None:
        failed = [device for device in verdict.devices if device.status == "failed"]
        labels = []
        for device in failed:
            name = f" ({device.name})" if device.kind == "gpu" else ""
            labels.append(f"{device.label}{name}")
        check = next(one for one in failed[0].checks if one.status == "failed")
        cause, why = check.id, check.message
        fixes: tuple[Hint, ...] = check.fixes
        if check.name != "import" or not fixes:
            fixes += (make_command("plan --all", note=_OTHER_BUILDS),)
        names = join_names([*changed])
        # A changed package prevents the import, not torch.
        if names and check.name == "import":
            cause, why = None, f"{why}; it passed before the change of {names}"
            again = f"Request another version of {names}; the environment is unchanged"
            fixes = (again,)
        super().__init__(
            "kernel-failed",
            f"torch {fit.choice.build.name} failed on {', '.join(labels)}: {check.name}",
            why=why,
            id=cause,
            hint=fixes,
            data={"plan": fit.plan.to_dict(), "verdict": verdict.to_dict()},
        )
        self.fit = fit
        self.verdict = verdict


def check_links(
    fit: CompatibleLock,
    site: Path,
    reporter: Reporter,
) -> None:
    """Check without loading libraries that all their dependencies are found.

    A missing dependency of a package that was not requested only causes a warning.

    Args:
        fit: The lock file and the request.
        site: The packages folder.
        reporter: Receives the warnings.

    Raises:
        InstallationError: A library of a requested package cannot be loaded.
    """
    from gpuinstall.wheels.linking import (
        find_link_faults,
        find_system_libraries,
        read_libraries,
    )
    from gpuinstall.wheels.members import load_members

    requested = requirement_names(fit.choice.requirements)
    libraries = read_libraries(site)
    names = {library.elf.soname for library in libraries}
    names |= {Path(library.path).name for library in libraries}
    configured = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    folders = list(map(Path, configured))
    for fault in find_link_faults(libraries, find_system_libraries()):
        library = fault.candidate
        # The library exists in a folder that the package or this machine searches.
        is_present = fault.reason.code == "missing-library" and (
            fault.name in names
            or any(isfile(folder / fault.name) for folder in folders)
        )
        members = load_members()
        is_optional = members.is_optional(library.package, library.path)
        # A library of bitsandbytes is for one CUDA version.
        if is_present or is_optional or library.package in members.per_cuda:
            continue
        if library.package not in requested:
            reporter.warn(fault.reason.message)
            continue
        raise InstallationError(
            "library-not-loadable",
            fault.reason.message,
            id="F56",
            hint=f"Request {fault.provider} too" if fault.provider else None,
        )


class VerificationResult(Value):
    """Result of verifying an environment."""

    verdict: dict[str, Any] = field(default_factory=dict)
    """The Verdict document, empty without a verification."""
    stamp: Stamp | None = None
    """The stamp of the environment, or None without a verification."""
    is_kept: bool = False
    """Whether the previous verification of torch is still valid."""


def update_verification(
    fit: CompatibleLock,
    place: EnvironmentPaths,
    state: InstallState,
    reporter: Reporter,
    *,
    earlier: Stamp | None = None,
    ahead: Verdict | None = None,
) -> VerificationResult:
    """Verify the modules that an earlier verification does not cover.

    Args:
        fit: The environment's lock file.
        place: The environment.
        state: The state, with the machine.
        reporter: Reports the outcomes.
        earlier: The stamp before the change, if any.
        ahead: The verdict on the staged packages, if any.

    Raises:
        KernelFailedError: A kernel failed.
    """
    from gpuinstall.verify.files import create_stamp  # slow to import

    here = state.here
    # Stamp files first, so that a change while kernels run is detected.
    stamp = create_stamp(place.venv)
    verdict = None
    is_kept = False
    is_valid = earlier and earlier.covers(fit.gpus)
    if earlier and here is None:
        # Without the GPUs, the verdict remains unproven.
        is_valid = earlier.verdict.get("status") == "unproven"
    if ahead:
        check_import(place.find_interpreter())
        verdict = ahead.to_dict()
    elif earlier and is_valid and stamp.has_same_torch(earlier):
        new = stamp.find_new_programs(earlier)
        tested = None
        if new:
            tested = run_kernels(fit, place, state, reporter, programs=new)
        # If a GPU is in use, postpone all kernels.
        if tested is None or tested.status == "passed":
            from gpuinstall.verify.verdict import update_programs

            changed = {*new, *(earlier.programs - stamp.programs)}
            verdict = update_programs(earlier.verdict, changed, tested)
            is_kept = True
    if verdict is None:
        verdict = run_kernels(fit, place, state, reporter).to_dict()
    driver = here.driver if here else None
    return VerificationResult(
        verdict, replace(stamp, verdict=verdict, driver=driver), is_kept
    )


def check_import(python: Path) -> None:
    """Check that torch can be imported from its final location.

    Raises:
        InstallationError: The import fails.
    """
    from gpuinstall.verify.kernel_run import KERNEL_SECONDS  # slow to import

    seconds = KERNEL_SECONDS["quick"]
    done = process.run_python([python, "-I", "-c", "import torch"], seconds=seconds)
    if not done.ok:
        raise InstallationError(
            "not-importable",
            f"torch cannot be imported: {describe_end(done, seconds)}",
            why="its kernels passed before its files were moved into the environment",
        )


def run_kernels(
    fit: CompatibleLock,
    place: EnvironmentPaths,
    state: InstallState,
    reporter: Reporter,
    *,
    python: Path | None = None,
    programs: Collection[str] = (),
) -> Verdict:
    """Verify an environment by running kernels on this machine's GPUs.

    Args:
        fit: The environment's lock file.
        place: The environment.
        state: The state, with the machine.
        reporter: Reports the outcomes.
        python: The interpreter. None: the environment's.
        programs: The modules to check, or none for torch and all modules.

    Raises:
        KernelFailedError: A kernel failed.
    """
    from gpuinstall.verify.runner import verify_environment

    start = monotonic()
    machine = state.here or replace(state.lock_request.machine, gpus=())
    gpus = (fit.gpus if state.here else ()) or None
    origin = Origin(fit.plan.status == "cpu", gpus)
    python = python or place.find_interpreter()
    verdict = verify_environment(
        python, machine, origin, programs=programs, reporter=reporter
    )
    verdict = _check_gpu_code(verdict, fit.choice.build)
    if verdict.status == "failed" and place.is_managed:
        verdict = _ignore_unlocked_packages(verdict, fit, place, reporter)
    outcomes = [f"{device.label}: {device.outcome}" for device in verdict.devices]
    reporter.step("Verified", " · ".join(outcomes), monotonic() - start)
    if verdict.status == "failed":
        raise KernelFailedError(fit, verdict)
    return verdict


def _ignore_unlocked_packages(
    verdict: Verdict, fit: CompatibleLock, place: EnvironmentPaths, reporter: Reporter
) -> Verdict:
    """Warn about failed packages outside the lock; return the other checks."""
    from gpuinstall.verify.files import find_program_packages

    folders = place.find_packages_folders()
    unlocked = {
        module.replace("_", "-"): package.name
        for module, package in find_program_packages(folders).items()
        if package.name not in fit.lock.names
    }
    devices = []
    for device in verdict.devices:
        kept = []
        for check in device.checks:
            # The name of a program's check is PACKAGE-WORD.
            package = unlocked.get(check.name.rpartition("-")[0])
            if package and check.status == "failed":
                message = f"{package}, which is not in the lock file, does not work"
                reporter.warn(f"{message}: {check.message}")
            else:
                kept.append(check)
        devices.append(replace(device, checks=tuple(kept)))
    return replace(verdict, devices=tuple(devices))


def _check_gpu_code(verdict: Verdict, build: Build) -> Verdict:
    """Mark GPUs as failed if torch and its wheel list different GPU code."""
    # The architectures that torch reports take precedence over the inspected wheel.
    named = {*verdict.environment.architectures}
    differing = set[str]()
    if build.learned and named:
        differing = named.symmetric_difference(build.code)
    # torch does not report PTX that is only in libraries.
    if all(name.startswith("compute_") for name in differing):
        return verdict
    told = " ".join(verdict.environment.architectures)
    message = f"torch {build.name} has code for {told}, but its wheel listed {' '.join(build.code)}"
    check = CheckResult("learned", "failed", message=message)
    devices = [
        device.with_checks([check]) if device.checks else device
        for device in verdict.devices
    ]
    return replace(verdict, devices=tuple(devices))


def exclude_failing_builds(
    catalog: Catalog,
    build: Build,
    verdict: Verdict,
) -> Catalog | None:
    """Return the builds that a failed verification does not rule out.

    Args:
        catalog: The catalog.
        build: The failed build.
        verdict: The verdict of the failed verification.

    Returns:
        The remaining builds, or None if all other builds would fail too.
    """
    faults = [fault for device in verdict.devices for fault in device.faults]
    from gpuinstall.catalog.failures.table import load_failures  # slow to import

    differing = {load_failures()[fault.id].another for fault in faults if fault.id}
    if not differing & {"code", "toolkit"}:
        return None

    def fails(other: Build) -> bool:
        if "code" in differing:
            return other.code == build.code
        if other.backend.kind != build.backend.kind:
            return False
        major = (other.toolkit or ())[:1]
        return major == (build.toolkit or ())[:1]

    catalog = catalog.with_kind(build.backend.kind)
    if not any(
        row.name == build.name and row.platform == build.platform
        for row in catalog.builds
    ):
        # The catalog may lack a build that this command inspected.
        catalog = replace(catalog, builds=(*catalog.builds, build))
    return catalog.exclude_builds(fails, "failed")
