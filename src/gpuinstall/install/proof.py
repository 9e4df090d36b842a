"""The proof of an environment: kernels on the GPUs that were planned for, and what is said when one fails."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import VerificationError
from gpuinstall.verify import verify_environment

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.install.options import InstallOptions, Prepared
    from gpuinstall.session import Session
    from gpuinstall.verify.verdict import Device, Verdict


def prove(order: InstallOptions, prepared: Prepared, venv: Path, session: Session) -> Verdict:
    """Run the kernels of an environment on this machine's GPUs, or say that they are not here."""
    start = monotonic()
    machine = order.here or replace(order.machine, gpus=())
    gpus = tuple(run.index for run in prepared.plan.gpus if run.how != "none") if order.here else None
    for_cpu = prepared.plan.status == "cpu"
    verdict = verify_environment(
        interpreter(venv), machine, asked_cpu=for_cpu, gpus=gpus or None, reporter=session.reporter
    )
    session.reporter.step("Verified", summary(verdict), monotonic() - start)
    return verdict


def summary(verdict: Verdict) -> str:
    """Say in one line what became of each device."""
    parts = []
    for device in verdict.devices:
        count = sum(check.status == "passed" for check in device.checks)
        said = f"{count} checks" if device.status == "passed" else device.unproven or device.status
        parts.append(f"{device.label}: {said}")
    return " · ".join(parts)


def failure(prepared: Prepared, verdict: Verdict) -> VerificationError:
    """Say which kernel failed where."""
    failed = [(device, check) for device in verdict.devices for check in device.checks if check.status == "failed"]
    check = failed[0][1]
    places = dict.fromkeys(_named(device) for device, _ in failed)
    return VerificationError(
        "kernel-failed",
        f"torch {prepared.choice.build.name} failed on {', '.join(places)}: {check.name}",
        why=check.message,
        id=check.cause,
        hint="the environment was not replaced; gpuinstall doctor says more",
        data={"plan": prepared.plan.to_dict(), "verdict": verdict.to_dict()},
    )


def _named(device: Device) -> str:
    return device.name if device.label == device.name else f"{device.label} ({device.name})"
