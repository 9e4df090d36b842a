"""Causes and fixes of failed checks in the report of a child process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.base.finding import CheckResult
from gpuinstall.base.text import join_names
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.failures.classify import Conditions, classify, known_of
from gpuinstall.catalog.failures.problems import code_told, fix
from gpuinstall.catalog.failures.table import load_failures, load_problems
from gpuinstall.environments.environment import create_hint_placeholders
from gpuinstall.machine.vendors import FIRST_VENDOR, create_rules, load_rules
from gpuinstall.verify.devices import CPU_TARGET, DeviceTarget
from gpuinstall.verify.kernels import all_gpus, deep, quick
from gpuinstall.verify.kernels.programs import create_program_check

if TYPE_CHECKING:
    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.environments.damage import Damage
    from gpuinstall.verify.interpreter import FoundTorch, Interpreter
    from gpuinstall.verify.kernel_run import KernelReport, KernelRun
    from gpuinstall.verify.verdict import Device


ABSENT = "No module named 'torch'"
NO_KERNEL = "no kernel image"
NO_LIBRARY = "cannot open shared object file"
NO_NUMPY = "NumPy cannot be loaded"
NOT_AS_INSTALLED = "modified since installation"

SHADOWED = "F46"

USUAL_CAUSES = {
    check.name: check.cause for check in quick.CHECKS + deep.CHECKS + all_gpus.CHECKS
}
"""The usual cause of a check that fails without a known message."""


class Verification(Value):
    """Environment to verify, and the devices for its kernels."""

    machine: Machine
    interpreter: Interpreter
    run: KernelRun
    reporter: Reporter
    targets: tuple[DeviceTarget, ...] = (CPU_TARGET,)
    altered: tuple[str, ...] = ()
    """The modified files of torch, searched for only if the import fails."""
    damaged: tuple[Damage, ...] = ()
    """The damaged packages, searched for only if a check fails."""

    @property
    def torch(self) -> FoundTorch:
        """The torch that the kernels import."""
        return self.interpreter.torch_to_verify

    def failed(
        self, name: str, message: str, entry: str | None = None, **words: str
    ) -> CheckResult:
        """Create a failed check with the ID and fixes of the failure.

        Args:
            name: The name of the check.
            message: The error message. If it contains a problem's own text, that
                problem determines the ID and fixes.
            entry: The ID of a failure or the code of a problem, which applies to any
                other message.
            words: The values of placeholders in the fixes.
        """
        closest = code_told(message) or entry
        problem = load_problems().get(closest or "")
        conditions = Conditions(message, known_of(self.machine))
        context = conditions.fix_context(self.machine)
        context = context.knowing(**create_hint_placeholders(self.run.python), **words)
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
    verification: Verification,
) -> Device:
    """Create a device with checks and causes from a child's report.

    Args:
        target: The device.
        report: The child's report.
        verification: The environment and the machine.
    """
    checks = diagnose_checks(target, report, verification)
    if target.unproven:
        checks.append(CheckResult("device", "skipped", message=target.unproven))
    return target.result(checks, unproven=target.unproven or report.unproven)


def diagnose_checks(
    target: DeviceTarget,
    report: KernelReport,
    verification: Verification,
) -> list[CheckResult]:
    """Add causes and fixes to the failed checks of a report.

    Args:
        target: The device.
        report: The child's report.
        verification: The environment and the machine.
    """
    return [
        _diagnose_check(record, target, report, verification)
        if record.status == "failed"
        else record
        for record in report.records
    ]


def _diagnose_check(
    record: CheckResult,
    target: DeviceTarget,
    report: KernelReport,
    verification: Verification,
) -> CheckResult:
    message = _format_message(record, report, verification)
    text = f"{message}\n{record.evidence}"
    damage = next((one for one in verification.damaged if one.is_named_in(text)), None)
    entry = None
    # If a file is missing, the error mentions the library that needs it, which is not the cause.
    if not (damage or verification.altered or ABSENT in record.evidence):
        entry = _find_cause(record.name, text, target, report, verification)
    words = {"package": "torch"}
    if damage:
        message = damage.message
        words["package"] = damage.package.name
        entry = "torch-damaged"
    if record.name == "import" and not entry and not code_told(message):
        entry = "torch-damaged"
    program = verification.run.program
    if program:
        words["extension"] = canonicalize_name(program)
    check = verification.failed(record.name, message, entry, **words)
    return replace(check, seconds=record.seconds)


def _format_message(
    record: CheckResult,
    report: KernelReport,
    verification: Verification,
) -> str:
    if ABSENT in record.evidence:
        return "torch is not installed in this environment"
    parts = [_find_numpy_error(record.evidence) or record.message or "failed"]
    if record.name == "import" and verification.altered:
        parts.append(f"{NOT_AS_INSTALLED}: {join_names(verification.altered)}")
    if report.loader_settings:
        parts.append(f"it passes without {report.loader_settings}")
    return "; ".join(parts)


def _find_numpy_error(text: str) -> str | None:
    """Return NumPy's original error, which follows a long explanation."""
    lines = text.partition("Original error was:")[2].strip().splitlines()
    return f"{NO_NUMPY}: {lines[0]}" if lines else None


def _find_cause(
    name: str,
    text: str,
    target: DeviceTarget,
    report: KernelReport,
    verification: Verification,
) -> str | None:
    """Return the failure that matches a check's error, or the usual one.

    Args:
        name: The name of the check.
        text: The message, and the output of the child.
        target: The device.
        report: The child's report.
        verification: The environment and the machine.
    """
    causes, rows = classify(text, verification.machine), load_failures()
    # A symptom's fixes tell causes apart by tests like this one.
    known = next((one.id for one in causes if not rows[one.id].is_symptom), None)
    # torch has passed its checks, so its failures cannot be the cause.
    program = verification.run.program
    if program:
        usual = create_program_check(program, target.device).cause
        if NO_KERNEL in text or NO_LIBRARY in text:
            return usual
        return known or (None if "No module named" in text else usual)
    if NO_KERNEL in text:
        if target.gpu is None or not report.architectures:
            return "F37"
        rules = create_rules(
            verification.machine, load_catalog(), (verification.torch.kind or "",)
        )
        return rules.find_no_code_cause(report.architectures, target.gpu)
    # The environment's own torch was imported, so no other torch shadows it.
    if name == "import" and known == SHADOWED:
        known = None
    return known or USUAL_CAUSES.get(name)


def report_wrong_build(target: DeviceTarget, verification: Verification) -> Device:
    """Create a failed GPU for a torch that was built for other devices."""
    backend = verification.torch.backend
    is_for_cpu = backend == CPU
    kind = "CPU" if is_for_cpu else backend
    message = f"this is the {kind} build of torch: {target.name} is not used"
    vendor = load_rules(target.vendor or FIRST_VENDOR)
    cause = vendor.idle_causes[not is_for_cpu]
    return target.result([verification.failed("build", message, cause)])
