"""From what a child reported to what it means: a Device whose failed checks have a cause and a fix. Pure.

And whether a build has code for the GPUs of a machine, as the catalogue and the maker's rules know it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gpuinstall.backend import CPU, Backend
from gpuinstall.catalog import Build, Catalog, load_catalog
from gpuinstall.environments.environment import advice_words
from gpuinstall.failures.classify import cause_of, circumstances_of, fix_context
from gpuinstall.failures.problems import code_told, fix
from gpuinstall.finding import CheckResult
from gpuinstall.learned.store import known_catalog
from gpuinstall.vendors import VENDORS, rules_for
from gpuinstall.vendors.protocol import Code, Rules
from gpuinstall.verify.verdict import Device

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.verify.devices import DeviceTarget
    from gpuinstall.verify.interpreter import FoundTorch
    from gpuinstall.verify.kernel_run import KernelReport


_ARCHITECTURES = "architectures"
ABSENT = "No module named 'torch'"
NO_KERNEL = "no kernel image"
NO_LIBRARY = "cannot open shared object file"
NO_NUMPY = "NumPy cannot be loaded"

CAUSES = (
    ("convolution", "legacy-gpu", "F55"),
    ("convolution", None, "F51"),
    ("batched-product", None, "F50"),
    ("linear", None, "F50"),
    ("optimizer-step", "driver-525", "F19"),
    ("numpy", None, "F66"),
    ("compile", None, "F68"),
    ("all-reduce", None, "F69"),
)
"""What a check that fails without a known message is most often; the first that fits, by what holds of the machine."""

PROGRAM_CAUSES = {"torchvision": "F47", "torchaudio": "F48", "bitsandbytes": "F71", "triton": "F68"}
OTHER_TORCH = "F56"
"""What a program that fails beside a torch that works was most often made for: another one."""


@dataclass(frozen=True)
class ProofContext:
    """What is known besides a child's own words: the machine, the interpreter, the torch in it, the files it has lost.

    ``ours`` says that an installation of ours made the environment.
    """

    machine: Machine
    python: Path
    torch: FoundTorch
    missing: tuple[str, ...] = ()
    ours: bool = False

    @cached_property
    def words(self) -> dict[str, str]:
        """The words by which a fix names this environment."""
        return advice_words(self.python)

    @cached_property
    def rules(self) -> Rules:
        """The rules of the maker that this torch is for."""
        return rules_for(self.machine, load_catalog(), (self.torch.kind or "",))

    def build(self, architectures: tuple[str, ...]) -> Build:
        """Describe the torch as the catalogue describes builds; what does not decide over its code is left out."""
        version = self.torch.toolkit and self.torch.toolkit.version
        major, _, minor = (version or "").partition(".")
        toolkit = (int(major), int(minor)) if minor else None
        backend = self.torch.backend or CPU
        return Build(
            Version("0"), backend, self.machine.os, self.machine.arch, architectures, toolkit
        )

    def failed(
        self,
        name: str,
        message: str,
        cause: str | None = None,
        *,
        code: str | None = None,
        **words: str,
    ) -> CheckResult:
        """Make a failed check with its fix: that of ``code`` where given, closer than that of ``cause``."""
        entry = code or code_told(message) or cause
        context = fix_context(message, self.machine).knowing(**self.words, **words)
        return CheckResult(
            name, "failed", message=message, id=cause, fixes=fix(entry, context) if entry else ()
        )


def diagnose(target: DeviceTarget, report: KernelReport, proof: ProofContext) -> Device:
    """Turn one child's report into a Device."""
    checks = check_results(target, report, proof)
    if report.architecture and target.gpu:
        gpu = replace(target.gpu, architecture=report.architecture)
        checks.insert(2, _architecture_check(gpu, target, report, proof))
    if target.unproven:
        checks.append(CheckResult("device", "skipped", message=target.unproven))
    return Device(target.index, target.name, tuple(checks), target.unproven or report.unproven)


def check_results(
    target: DeviceTarget, report: KernelReport, proof: ProofContext
) -> list[CheckResult]:
    """Turn what one child ran into results, the failed ones with cause and fix."""
    return [_result(record, target, report, proof) for record in report.records]


def wrong_build(target: DeviceTarget, proof: ProofContext) -> Device:
    """Fail a GPU that a CPU build leaves idle, or one for other makers' cards."""
    backend = proof.torch.backend
    message = f"this is the {'CPU' if backend == CPU else backend} build of torch: {target.name} is not used"
    cause = VENDORS[target.vendor or next(iter(VENDORS))].idle_causes[backend != CPU]
    return Device(target.index, target.name, (proof.failed("build", message, cause),))


def _result(
    record: CheckResult, target: DeviceTarget, report: KernelReport, proof: ProofContext
) -> CheckResult:
    if record.status != "failed":
        return record
    message = _message(record, report, proof)
    unknown = proof.missing or ABSENT in record.evidence
    cause = (
        None
        if unknown
        else _cause(record.name, f"{message}\n{record.evidence}", target, report, proof)
    )
    nameless = record.name == "import" and not (cause or code_told(message))
    words = {"extension": canonicalize_name(report.program)} if report.program else {}
    failed = proof.failed(
        record.name, message, cause, code="torch-damaged" if nameless else None, **words
    )
    return replace(failed, seconds=record.seconds)


def _message(record: CheckResult, report: KernelReport, proof: ProofContext) -> str:
    if ABSENT in record.evidence:
        reason = (
            ": its Python has 32 bits, and torch is made for 64" if proof.torch.is_32_bit else ""
        )
        return f"torch is not installed in this environment{reason}"
    parts = [_numpy_error(record.evidence) or record.message or "failed"]
    if record.name == "import" and proof.missing:
        count = f"{len(proof.missing)} files" if len(proof.missing) > 1 else "a file"
        parts.append(f"torch is missing all or part of {count}: {proof.missing[0]}")
    if report.loader_variables:
        parts.append(
            f"it passes without {' '.join(f'{name}={value}' for name, value in report.loader_variables)}"
        )
    return "; ".join(parts)


def _numpy_error(text: str) -> str | None:
    """Find NumPy's own error below the advice that it prints first."""
    _, advice, rest = text.partition("Original error was:")
    return f"{NO_NUMPY}: {rest.strip().splitlines()[0]}" if advice and rest.strip() else None


def _cause(
    name: str, text: str, target: DeviceTarget, report: KernelReport, proof: ProofContext
) -> str | None:
    """Name the entry of the failure catalogue for a failed check: by its text, else by what failed and where."""
    if report.program:
        usual = PROGRAM_CAUSES.get(report.program, OTHER_TORCH)
        if NO_KERNEL in text or NO_LIBRARY in text:
            return usual
        return cause_of(text, proof.machine) or (None if "No module named" in text else usual)
    if NO_KERNEL in text:
        return _no_code_cause(target, report, proof)
    return cause_of(text, proof.machine) or _usual_cause(name, text, target, proof.machine)


def _usual_cause(name: str, text: str, target: DeviceTarget, machine: Machine) -> str | None:
    """Name what a check that fails without a known message is most often."""
    if NO_NUMPY in text:
        return "F66"
    if name == "import":
        return "F62" if "SIGILL" in text else None
    around = circumstances_of(replace(machine, gpus=(target.gpu,) if target.gpu else ()))
    return next(
        (
            cause
            for check, where, cause in CAUSES
            if check == name and (not where or where in around)
        ),
        None,
    )


def _no_code_cause(target: DeviceTarget, report: KernelReport, proof: ProofContext) -> str:
    """Tell a GPU that is newer than the build's code from one that is older, where both are known."""
    if target.gpu is None or not report.architectures:
        return "F37"
    return no_code_cause(proof.rules, target.gpu, report.architectures)


def _architecture_check(
    gpu: Gpu, target: DeviceTarget, report: KernelReport, proof: ProofContext
) -> CheckResult:
    """Say which code of the build the GPU runs; that there is none is a fault only where kernels failed."""
    code = proof.rules.code(proof.build(report.architectures or ()), gpu)
    if isinstance(code, Code):
        capability = gpu.compute_capability
        chip = f"compute capability {capability}" if capability else gpu.architecture
        return CheckResult(_ARCHITECTURES, "passed", message=f"{chip} runs {code.name}")
    message = f"the build has {code.message}"
    if not report.failed:
        return CheckResult(_ARCHITECTURES, "passed", message=message)
    return proof.failed(_ARCHITECTURES, message, _no_code_cause(target, report, proof))


_MADE_LATER = "compute_"
"""Code that is compiled at first use may be in libraries alone, and then torch's own list does not name it."""


def confirm(
    devices: list[Device],
    architectures: Sequence[str],
    build: Build | None,
    proof: ProofContext,
    reporter: Reporter,
) -> list[Device]:
    """Fail every device where torch names other architectures than the build that it was made of.

    Where the catalogue itself is not sure of a build, that is a warning.
    """
    if build is None or not (architectures and build.code):
        return devices
    differing = {*architectures} ^ {*build.code}
    if all(name.startswith(_MADE_LATER) for name in differing):
        return devices
    source = f"its wheel, read on {build.learned}, named" if build.learned else "the catalogue has"
    message = f"torch {build.name} has code for {' '.join(architectures)}, and {source} {' '.join(build.code)}"
    if build.learned is None and build.confidence != "high":
        reporter.warn(f"{message}: please report it")
        return devices
    fixes = (f"gpuinstall install --upgrade{proof.words.get('into', '')}", "please report it")
    check = CheckResult("catalogue", "failed", message=message, fixes=fixes)
    return [device.with_checks([check] if device.checks else ()) for device in devices]


def build_of(proof: ProofContext) -> Build | None:
    """Find the build that an environment of ours was made of; of others' nobody knows where their torch is from."""
    if not (proof.ours and proof.torch.backend):
        return None
    return find_build(
        known_catalog(), proof.machine, proof.torch.version or "", proof.torch.backend
    )


def no_code_cause(rules: Rules, gpu: Gpu, architectures: Sequence[str]) -> str:
    """Tell a GPU that is newer than a build's code from one that is older, where its maker's numbers tell that."""
    unnamed = replace(gpu, compute_capability=None)
    newest = max(rules.rank(replace(unnamed, architecture=name)) for name in architectures)
    return rules.no_code_causes[rules.rank(gpu) > newest]


def find_build(catalog: Catalog, machine: Machine, version: str, backend: Backend) -> Build | None:
    """Find a build of the catalogue by torch's version, of which the label does not count."""
    with suppress(InvalidVersion):
        torch = Version(Version(version).public)
        builds = catalog.serving(backend.kind).builds_for(machine.os, machine.arch)
        return next(
            (build for build in builds if (build.torch, build.backend) == (torch, backend)), None
        )
    return None
