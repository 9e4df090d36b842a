"""From what a child reported to what it means: a Device whose failed checks have a cause. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuinstall.verify.architectures import architecture_check
from gpuinstall.verify.causes import Situation, cause_of
from gpuinstall.verify.verdict import Check, Device

if TYPE_CHECKING:
    from gpuinstall.machine import Machine
    from gpuinstall.verify.report import Record, Report
    from gpuinstall.verify.targets import Target

ABSENT = "No module named 'torch'"
NUMPY = "Original error was:"


@dataclass(frozen=True)
class Evidence:
    """What is known besides a child's own words: the machine, the build's CUDA, the files that torch has lost.

    ``narrow`` says that the interpreter has 32 bits.
    """

    machine: Machine
    cuda: str | None = None
    missing: tuple[str, ...] = ()
    narrow: bool = False


def device(target: Target, report: Report, evidence: Evidence) -> Device:
    """Turn one child's report into a Device."""
    situation = _situation(target, report, evidence)
    checks = [_check(record, report, evidence, situation) for record in report.records]
    if report.capability:
        names, machine = situation.architectures, evidence.machine
        compared = architecture_check(names, evidence.cuda, report.capability, machine, failed=report.failed)
        checks.insert(2, _with_cause(compared, situation))
    if target.unproven:
        checks.append(Check("device", "skipped", message=target.unproven))
    return Device(target.index, target.name, tuple(checks), target.unproven or report.unproven)


def _situation(target: Target, report: Report, evidence: Evidence) -> Situation:
    capability = target.gpu.compute_capability if target.gpu else None
    return Situation(evidence.machine, capability, report.architectures or ())


def wrong_build(target: Target, backend: str | None) -> Device:
    """Fail a GPU that a CPU build leaves idle, or one for other makers' cards."""
    message = f"this is the {'CPU' if backend == 'cpu' else backend} build of torch: {target.name} is not used"
    cause = "F33" if backend == "cpu" else "F24"
    return Device(target.index, target.name, (Check("build", "failed", message=message, cause=cause),))


def _check(record: Record, report: Report, evidence: Evidence, situation: Situation) -> Check:
    if record.status != "failed":
        return Check(record.name, record.status, record.seconds, record.message)
    check = Check(record.name, "failed", record.seconds, _explained(record, report, evidence))
    unknown = evidence.missing or ABSENT in record.text
    return check if unknown else _with_cause(check, situation, record.text)


def _explained(record: Record, report: Report, evidence: Evidence) -> str:
    if ABSENT in record.text:
        reason = ": its Python has 32 bits, and torch is made for 64" if evidence.narrow else ""
        return f"torch is not installed in this environment{reason}"
    parts = [_numpy(record.text) or record.message or "failed"]
    if record.name == "import" and evidence.missing:
        count = f"{len(evidence.missing)} files" if len(evidence.missing) > 1 else "a file"
        parts.append(f"torch has lost all or part of {count} since it was installed: {evidence.missing[0]}")
    if report.blamed:
        parts.append(f"it passes without {report.blamed}")
    return "; ".join(parts)


def _numpy(text: str) -> str | None:
    """Find NumPy's own error below the advice that it prints first."""
    _, found, rest = text.partition(NUMPY)
    return f"NumPy cannot be loaded: {rest.strip().splitlines()[0]}" if found and rest.strip() else None


def _with_cause(check: Check, situation: Situation, text: str = "") -> Check:
    if check.status != "failed":
        return check
    return replace(check, cause=cause_of(check.name, f"{check.message}\n{text}", situation))
