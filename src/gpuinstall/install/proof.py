"""The proofs of an installation: the driver's before anything is downloaded, then the environment's by kernels."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.errors import VerificationError
from gpuinstall.failures.table import load_failures
from gpuinstall.verify import verify_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.lock.fit import Fit
    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.request import Request
    from gpuinstall.session import Session
    from gpuinstall.verify.verdict import Device, Verdict


class KernelFailedError(VerificationError):
    """A kernel failed; ``verdict`` says which, ``build`` what it is of."""

    def __init__(self, fit: Fit, verdict: Verdict) -> None:
        failed = [(device, check) for device in verdict.devices for check in device.checks if check.status == "failed"]
        check = failed[0][1]
        names = dict.fromkeys(_named(device) for device, _ in failed)
        super().__init__(
            "kernel-failed",
            f"torch {fit.choice.build.name} failed on {', '.join(names)}: {check.name}",
            why=check.message,
            id=check.id,
            hint="\n".join(map(str, check.fixes)) or "gpuinstall plan --all   # the other builds: --backend takes one",
            data={"plan": fit.plan.to_dict(), "verdict": verdict.to_dict()},
        )
        self.build, self.verdict = fit.choice.build, verdict


def preflighted(machine: Machine, here: Machine | None, request: Request, reporter: Reporter) -> Machine:
    """Prove the driver before anything is downloaded; what is wrong with it counts in the plan for ``machine``."""
    from gpuinstall.probe import preflight

    if here is None or not here.gpus or request.is_for_cpu:
        return machine
    return machine.with_problems(preflight(here, reporter).problems)


def prove(fit: Fit, python: Path, machine: Machine, here: Machine | None, session: Session) -> Verdict:
    """Run the kernels of an environment on this machine's GPUs, or say that they are not ``here``.

    Raise KernelFailedError where one fails.
    """
    start = monotonic()
    gpus = tuple(run.index for run in fit.plan.gpus if run.how != "none") if here else None
    for_cpu = fit.plan.status == "cpu"
    verdict = verify_environment(
        python,
        here or replace(machine, gpus=()),
        asked_cpu=for_cpu,
        gpus=gpus or None,
        meant=fit.choice.build,
        reporter=session.reporter,
    )
    session.reporter.step("Verified", summary(verdict), monotonic() - start)
    if verdict.status == "failed":
        raise KernelFailedError(fit, verdict)
    return verdict


def summary(verdict: Verdict) -> str:
    """Say in one line what became of each device."""
    parts = []
    for device in verdict.devices:
        count = sum(check.status == "passed" for check in device.checks)
        result = f"{count} checks" if device.status == "passed" else device.unproven or device.status
        parts.append(f"{device.label}: {result}")
    return " · ".join(parts)


def catalog_without(catalog: Catalog, build: Build, verdict: Verdict) -> Catalog | None:
    """The catalogue with the builds that would fail as ``build`` did marked so; None where another would not help."""
    causes = {check.id for device in verdict.devices for check in device.checks if check.status == "failed"}
    other = {load_failures()[cause].another for cause in causes if cause}
    if "code" in other:
        return _without(catalog, build, lambda each: each.code == build.code)
    if "toolkit" in other:
        return _without(catalog, build, lambda each: _toolkit(each) == _toolkit(build))
    return None


def _without(catalog: Catalog, build: Build, fails: Callable[[Build], bool]) -> Catalog:
    """Mark builds, ``build`` itself too where this run alone has learned it, so that no listing brings them back."""
    catalog = catalog.serving(build.backend.kind)
    known = any((each.name, each.platform) == (build.name, build.platform) for each in catalog.builds)
    whole = catalog if known else replace(catalog, builds=(*catalog.builds, build))
    return whole.without(fails, "failed")


def _named(device: Device) -> str:
    return device.name if device.label == device.name else f"{device.label} ({device.name})"


def _toolkit(build: Build) -> tuple[object, ...]:
    return build.backend.kind, (build.toolkit or ())[:1]
