"""The proofs of an installation: the driver's before anything is downloaded, then the environment's by kernels."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.catalog.loader import load_catalog
from gpuinstall.environments.environment import fingerprint
from gpuinstall.environments.written_files import write_faults
from gpuinstall.errors import InstallationError, VerificationError
from gpuinstall.failures.table import load_failures
from gpuinstall.plan.requirement import requirement_names
from gpuinstall.shell import quoted
from gpuinstall.verify.cover import read_cover
from gpuinstall.verify.verdict import with_programs, without_programs
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.linking import link_faults, read_libraries, system_libraries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import Any

    from gpuinstall.catalog import Build, Catalog
    from gpuinstall.environments.packages import InstalledPackage
    from gpuinstall.environments.written_files import WriteFault
    from gpuinstall.lock.fit import Fit
    from gpuinstall.machine import Machine
    from gpuinstall.project import Project
    from gpuinstall.proof_record import ProofRecord
    from gpuinstall.reporter import Reporter
    from gpuinstall.request import Request
    from gpuinstall.verify.cover import ProofCover
    from gpuinstall.verify.verdict import Verdict


class KernelFailedError(VerificationError):
    """A kernel failed; ``verdict`` says which, ``build`` what it is of."""

    def __init__(self, fit: Fit, verdict: Verdict) -> None:
        failed = [
            (device, check)
            for device in verdict.devices
            for check in device.checks
            if check.status == "failed"
        ]
        check = failed[0][1]
        pairs = dict.fromkeys((device.label, device.name) for device, _ in failed)
        names = (name if label == name else f"{label} ({name})" for label, name in pairs)
        super().__init__(
            "kernel-failed",
            f"torch {fit.choice.build.name} failed on {', '.join(names)}: {check.name}",
            why=check.message,
            id=check.id,
            hint="\n".join(map(str, check.fixes))
            or "gpuinstall plan --all   # the other builds: --backend takes one",
            data={"plan": fit.plan.to_dict(), "verdict": verdict.to_dict()},
        )
        self.build, self.verdict = fit.choice.build, verdict


def preflighted(
    machine: Machine, here: Machine | None, request: Request, reporter: Reporter
) -> Machine:
    """Prove the driver before anything is downloaded; what is wrong with it counts in the plan for ``machine``."""
    from gpuinstall.probe import preflight

    if here is None or not here.gpus or request.is_for_cpu:
        return machine
    proof = preflight(here, reporter)
    if proof.cards:
        reporter.step("Preflight", proof.summary, proof.seconds)
    return machine.with_problems(proof.problems)


def check_links(fit: Fit, site: Path, machine: Machine, reporter: Reporter) -> None:
    """Look whether the libraries in a folder of packages can be loaded, without loading any.

    Raise InstallationError where one of a package that was asked for cannot; warn of the others.
    """
    named = requirement_names(fit.choice.requirements)
    libraries, members = read_libraries(site), load_members()
    there = {
        name for library in libraries for name in (Path(library.path).name, library.elf.soname)
    }
    told = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    glibc = tuple(map(int, machine.glibc.split("."))) if machine.glibc else None
    for fault in link_faults(libraries, system_libraries(), glibc):
        package, path, code = fault.candidate.package, fault.candidate.path, fault.reason.code
        own = (
            code == "missing-library" and fault.name in there
        )  # in a folder that its package looks into
        matters = fault.is_certain and not members.is_spare(package, path) and not own
        folder = next(
            (folder for folder in filter(None, told) if Path(folder, fault.name).is_file()), None
        )
        if matters and folder:
            reporter.warn(
                f"{path} of {package} finds {fault.name} through LD_LIBRARY_PATH ({folder}) alone"
            )
        elif (
            matters and package in named and code != "twice-there"
        ):  # which of them is used, a kernel shows
            brought = f"the same with {fault.provider}" if fault.provider else None
            raise InstallationError(
                "library-not-loadable", fault.reason.message, id="F56", hint=brought
            )
        elif matters:
            reporter.warn(fault.reason.message)


def check_written_files(
    packages: Sequence[InstalledPackage], changed: Collection[str], root: Path
) -> Iterator[WriteFault]:
    """Yield the ``changed`` packages that write the same files as others, and may.

    Raise InstallationError if one has written where it may not. ``packages`` are all in the environment at ``root``.
    """
    catalog = load_catalog()
    for fault in write_faults(
        packages, changed, root, family=catalog.family, is_tied=catalog.is_tied
    ):
        if not fault.is_refused:
            yield fault
            continue
        package = fault.packages[0]
        hint = f"gpuinstall install {quoted(f'{package.name}!={package.version}')}   # another version; or leave it out"
        raise InstallationError(
            "foreign-files",
            fault.message,
            why="its files would be imported as another package's",
            hint=hint,
        )


@dataclass(frozen=True)
class Installation:
    """The packages of a lock in an environment; once they are proven, with what came of it."""

    fit: Fit
    """The lock, with the hashes that it lacked, and its plan."""
    venv: Path
    """The environment."""
    python: Path
    """Its interpreter."""
    is_ours: bool = True
    """Whether its proof is recorded, to be kept as long as nothing changes."""
    earlier: ProofRecord | None = None
    """The proof of the environment that this one has its torch from."""
    verdict: dict[str, Any] = field(default_factory=dict)
    """The document of the verdict; empty if there is none yet."""
    proof: ProofRecord | None = None
    """The record of the proof."""
    is_proof_kept: bool = False
    """Whether no kernel of torch had to run, because nothing that the earlier proof covers has changed."""


def verify(installation: Installation, here: Machine | None, project: Project) -> Installation:
    """Prove an installation as far as the earlier proof does not cover it; return it with the verdict.

    Raise KernelFailedError.

    Args:
        installation: What is to be proven.
        here: This machine; None if no kernel can run on it.
        project: The run.
    """
    if not installation.is_ours:
        return replace(installation, verdict=prove(installation, here, project).to_dict())
    # Before kernels run: what changes meanwhile was not proven.
    cover = read_cover(installation.venv, installation.fit.lock.hashes_by_package)
    kept = _kept_verdict(installation, cover, here, project)
    verdict = kept or prove(installation, here, project).to_dict()
    record = cover.record(fingerprint(project.machine), verdict)
    return replace(installation, verdict=verdict, proof=record, is_proof_kept=kept is not None)


def _kept_verdict(
    installation: Installation, cover: ProofCover, here: Machine | None, project: Project
) -> dict[str, Any] | None:
    """Return the verdict of the earlier proof, with that of new programs; None if all has to be proven."""
    earlier = installation.earlier
    if earlier is None or not (earlier.proves(_gpus(installation)) and cover.keeps(earlier)):
        return None
    verdict = without_programs(earlier.verdict, earlier.programs.keys() - cover.programs.keys())
    new = cover.new_programs(earlier)
    if not new:
        return verdict
    tested = prove(installation, here, project, programs=new)
    # If a GPU is in use, what it could not show is shown as a whole.
    return with_programs(verdict, tested) if tested.status == "passed" else None


def prove(
    installation: Installation,
    here: Machine | None,
    project: Project,
    *,
    programs: Collection[str] | None = None,
) -> Verdict:
    """Run the kernels of an environment on this machine's GPUs, or say that they are not ``here``.

    With ``programs`` run the checks of these modules alone. Raise KernelFailedError if one fails.
    """
    from gpuinstall.verify.runner import verify_environment

    start, fit = monotonic(), installation.fit
    gpus = _gpus(installation) if here else ()
    verdict = verify_environment(
        installation.python,
        here or replace(project.machine, gpus=()),
        asked_cpu=fit.plan.status == "cpu",
        gpus=gpus or None,
        meant=fit.choice.build,
        programs=programs,
        reporter=project.reporter,
    )
    project.reporter.step("Verified", summary(verdict), monotonic() - start)
    if verdict.status == "failed":
        raise KernelFailedError(fit, verdict)
    return verdict


def _gpus(installation: Installation) -> tuple[int, ...]:
    """Return the GPUs that the plan is for, by their indices."""
    return tuple(run.index for run in installation.fit.plan.gpus if run.how != "none")


def summary(verdict: Verdict) -> str:
    """Say in one line what became of each device."""
    parts = []
    for device in verdict.devices:
        count = sum(check.status == "passed" for check in device.checks)
        result = (
            f"{count} checks" if device.status == "passed" else device.unproven or device.status
        )
        parts.append(f"{device.label}: {result}")
    return " · ".join(parts)


def catalog_without(catalog: Catalog, build: Build, verdict: Verdict) -> Catalog | None:
    """The catalogue with the builds that would fail as ``build`` did marked so; None where another would not help."""
    causes = {
        check.id
        for device in verdict.devices
        for check in device.checks
        if check.status == "failed"
    }
    differing = {load_failures()[cause].another for cause in causes if cause}
    if not differing & {"code", "toolkit"}:
        return None

    def fails(other: Build) -> bool:
        if "code" in differing:
            return other.code == build.code
        return (
            other.backend.kind == build.backend.kind
            and (other.toolkit or ())[:1] == (build.toolkit or ())[:1]
        )

    catalog = catalog.serving(build.backend.kind)
    if not any((row.name, row.platform) == (build.name, build.platform) for row in catalog.builds):
        catalog = replace(
            catalog, builds=(*catalog.builds, build)
        )  # learned in this run: no listing brings it back
    return catalog.without(fails, "failed")
