"""From what a child reported to what it means: a Device whose failed checks have a cause and a fix. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.base.finding import CheckResult
from gpuinstall.base.text import some
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.failures.classify import Circumstances, classify, known_of
from gpuinstall.catalog.failures.problems import code_told, fix
from gpuinstall.catalog.failures.table import load_problems
from gpuinstall.environments.environment import advice_words
from gpuinstall.machine.vendors import FIRST_VENDOR, VENDORS, rules_for
from gpuinstall.verify.kernels import all_gpus, deep, quick
from gpuinstall.verify.kernels.programs import program_check

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.verify.devices import DeviceTarget
    from gpuinstall.verify.interpreter import FoundTorch
    from gpuinstall.verify.kernel_run import KernelReport
    from gpuinstall.verify.verdict import Device


ABSENT = "No module named 'torch'"
NO_KERNEL = "no kernel image"
NO_LIBRARY = "cannot open shared object file"
NO_NUMPY = "NumPy cannot be loaded"
NOT_AS_INSTALLED = "not as they were installed"

SHADOWED = "F46"

USUAL_CAUSES = {
    check.name: check.cause for check in quick.CHECKS + deep.CHECKS + all_gpus.CHECKS
}
"""What a check that fails without a known message is most often."""


class ProofContext(Value):
    """What is known besides a child's own words."""

    machine: Machine
    python: Path
    torch: FoundTorch
    altered: tuple[str, ...] = ()
    """The files of torch that are not what was installed; looked for if it cannot be imported."""

    def failed(
        self,
        name: str,
        message: str,
        entry: str | None = None,
        **words: str,
    ) -> CheckResult:
        """Return a failed check with the fixes and the id of one entry.

        Args:
            name: The check.
            message: What failed; if our own words in it name a problem, that is the entry.
            entry: Otherwise the id of a failure, or the code of a problem. Of a problem without an id this has it.
            words: The placeholders of the fixes.
        """
        closest = code_told(message) or entry
        problem = load_problems().get(closest or "")
        circumstances = Circumstances(message, known_of(self.machine))
        context = circumstances.fix_context(self.machine)
        context = context.knowing(**advice_words(self.python), **words)
        return CheckResult(
            name,
            "failed",
            message=message,
            id=(problem.id if problem else None) or entry,
            fixes=fix(closest, context) if closest else (),
        )


def diagnose(
    target: DeviceTarget,
    report: KernelReport,
    proof: ProofContext,
) -> Device:
    """Turn one child's report into a Device.

    Args:
        target: The device, and what it was tried on.
        report: What the child told.
        proof: What is known of the environment and the machine.
    """
    checks = check_results(target, report, proof)
    if target.unproven:
        checks.append(CheckResult("device", "skipped", message=target.unproven))
    return target.tested(checks, unproven=target.unproven or report.unproven)


def check_results(
    target: DeviceTarget,
    report: KernelReport,
    proof: ProofContext,
) -> list[CheckResult]:
    """Turn what one child ran into results: those that failed have cause and fix.

    Args:
        target: The device.
        report: What the child told.
        proof: What is known of the environment and the machine.
    """
    return [
        _failed_check(record, target, report, proof)
        if record.status == "failed"
        else record
        for record in report.records
    ]


def _failed_check(
    record: CheckResult,
    target: DeviceTarget,
    report: KernelReport,
    proof: ProofContext,
) -> CheckResult:
    message = _message(record, report, proof)
    entry = None
    # The words of an import that fails for want of a file name what misses the file, not what took it away.
    if not proof.altered and ABSENT not in record.evidence:
        entry = _cause(
            record.name,
            f"{message}\n{record.evidence}",
            target,
            report,
            proof,
        )
    if record.name == "import" and not entry and not code_told(message):
        entry = "torch-damaged"
    words = {}
    if report.program:
        words["extension"] = canonicalize_name(report.program)
    check = proof.failed(record.name, message, entry, **words)
    return replace(check, seconds=record.seconds)


def _message(
    record: CheckResult,
    report: KernelReport,
    proof: ProofContext,
) -> str:
    if ABSENT in record.evidence:
        return "torch is not installed in this environment"
    parts = [_numpy_error(record.evidence) or record.message or "failed"]
    if record.name == "import" and proof.altered:
        parts.append(f"{NOT_AS_INSTALLED}: {some(proof.altered)}")
    if report.loader_settings:
        parts.append(f"it passes without {report.loader_settings}")
    return "; ".join(parts)


def _numpy_error(text: str) -> str | None:
    """Return NumPy's own error, which stands below the advice that it prints first."""
    lines = text.partition("Original error was:")[2].strip().splitlines()
    return f"{NO_NUMPY}: {lines[0]}" if lines else None


def _cause(
    name: str,
    text: str,
    target: DeviceTarget,
    report: KernelReport,
    proof: ProofContext,
) -> str | None:
    """Return the entry of the failure catalogue for a failed check: by its text, else by what failed and on what.

    Args:
        name: The check.
        text: All that is known of its failure: our message, and what the child printed.
        target: The device.
        report: What else the child told.
        proof: What is known of the environment and the machine.
    """
    known = next((cause.id for cause in classify(text, proof.machine)), None)
    # torch itself has passed: what is known of its own failures says nothing of a package beside it.
    if report.program:
        usual = program_check(report.program, target.device).cause
        if NO_KERNEL in text or NO_LIBRARY in text:
            return usual
        return known or (None if "No module named" in text else usual)
    if NO_KERNEL in text:
        if target.gpu is None or not report.architectures:
            return "F37"
        rules = rules_for(proof.machine, load_catalog(), (proof.torch.kind or "",))
        return rules.no_code_cause(report.architectures, target.gpu)
    # The torch that is imported is the environment's own: another one was looked for before.
    if name == "import" and known == SHADOWED:
        known = None
    return known or USUAL_CAUSES.get(name)


def wrong_build(target: DeviceTarget, proof: ProofContext) -> Device:
    """Fail a GPU that a CPU build leaves idle, or one for other makers' cards."""
    backend = proof.torch.backend
    is_for_cpu = backend == CPU
    kind = "CPU" if is_for_cpu else backend
    message = f"this is the {kind} build of torch: {target.name} is not used"
    vendor = VENDORS[target.vendor or FIRST_VENDOR]
    check = proof.failed(
        "build",
        message,
        vendor.idle_causes[not is_for_cpu],
    )
    return target.tested([check])
