"""NVIDIA's preflight: a small kernel on every GPU, its result checked; an outcome for each, a problem for each cause.

Each card has a child process of its own (:mod:`gpuinstall.vendors.nvidia.libcuda_child`) that sees only that card; a
MIG slice is a card here. Neither a toolkit nor torch is needed: the driver compiles the PTX.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from gpuinstall.facts.children import death, last_answer, run_children, time_limit
from gpuinstall.failures.problems import FixContext, finding_for
from gpuinstall.failures.table import load_errors, load_problems
from gpuinstall.vendors import vendor_of
from gpuinstall.vendors.nvidia.evidence import drivers
from gpuinstall.vendors.nvidia.libraries import (
    child_environment,
    is_compat,
    is_visible,
    job_devices,
    libcuda_command,
)
from gpuinstall.vendors.prober import OUTCOMES, GpuProof, Preflight, ProofOutcome, format_gpus
from gpuinstall.versions import ComputeCapability, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gpuinstall.finding import Finding
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.process import Finished
    from gpuinstall.reporter import Reporter


@dataclass(frozen=True)
class CudaCause:
    """Why CUDA refuses: ``{where}`` in the message stands for the GPUs.

    ``of`` names the problem behind it, where it is another than usual here; ``near`` and ``words`` narrow the fix.
    """

    code: str
    message: str
    why: str
    of: str | None = None
    near: tuple[str, ...] = ()
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class CudaContext:
    """What is known where CUDA refused. ``driver`` is the kernel module's release, ``library`` the file of libcuda.

    ``fix_context`` is where a fix would be applied, ``blackwells`` counts such GPUs, ``unsliced`` says that the GPU is
    in MIG mode without a slice, ``uvm`` whether /dev/nvidia-uvm can be opened, ``switches`` counts the NVSwitches
    on the bus (None: nobody looked).
    """

    wsl: bool = False
    container: str | None = None
    fix_context: FixContext = field(default_factory=FixContext)
    driver: DriverVersion | None = None
    library: str | None = None
    blackwells: int = 0
    unsliced: bool = False
    uvm: bool | None = None
    switches: int | None = None

    @classmethod
    def of(cls, machine: Machine, library: str | None = None) -> CudaContext:
        """Take from a machine what matters here."""
        capabilities = [gpu.compute_capability for gpu in machine.gpus]
        return cls(
            wsl=machine.environment.wsl,
            container=machine.environment.container,
            fix_context=FixContext.of_machine(machine),
            driver=machine.driver.version if machine.driver else None,
            library=library,
            blackwells=blackwells(capabilities),
        )

    @property
    def compat(self) -> bool:
        """Whether libcuda comes from NVIDIA's forward-compatibility package."""
        return is_compat(self.library)

    @property
    def library_version(self) -> DriverVersion | None:
        """The driver's release in the name of libcuda's file; None where it is not there."""
        try:
            version = DriverVersion.parse((self.library or "").rpartition("libcuda.so.")[2])
        except ValueError:
            return None
        return version if len(version.parts) > 1 else None

    @property
    def differs(self) -> bool:
        """Whether libcuda and the kernel module are known to be of different releases."""
        return self.driver is not None and self.library_version not in (None, self.driver)


def blackwells(capabilities: Iterable[ComputeCapability | None]) -> int:
    """Count the chips that only the open kernel module drives."""
    first = drivers().kernel_modules.open_only_from
    return sum(capability is not None and capability >= first for capability in capabilities)


def cuda_refusal(status: int, context: CudaContext) -> Finding:
    """Say why CUDA returned ``status``."""
    return problem_of_cause(
        cuda_cause(status, context), (), cuda_evidence(status, context), context.fix_context
    )


def cuda_cause(status: int, context: CudaContext) -> CudaCause:
    """Find the cause of a CUresult."""
    narrow, error = _NARROWED.get(status), load_errors("cuda").get(status)
    cause = known_cause(error.code if error else "cuda-error")
    return cause if narrow is None else narrow(cause, context)


def known_cause(code: str) -> CudaCause:
    """Read a cause in the words of the table of failures."""
    kind = load_problems()[code]
    return CudaCause(code, kind.message, kind.why)


def problem_of_cause(
    cause: CudaCause,
    gpus: tuple[int, ...],
    facts: str | None,
    fix_context: FixContext,
    *,
    blocking: bool = True,
) -> Finding:
    """Make a cause a problem of these GPUs."""
    message = cause.message.format(where=format_gpus(gpus))
    closer = fix_context.near(*cause.near).knowing(
        gpu=",".join(map(str, gpus)) or "<gpu>", **dict(cause.words)
    )
    code, why = cause.of or cause.code, cause.why
    finding = finding_for(
        code, message, closer, why=why, evidence=facts, gpus=gpus, blocking=blocking
    )
    return replace(finding, code=cause.code)


def cuda_evidence(status: int, context: CudaContext) -> str:
    """The facts behind a refusal."""
    driver, error = context.driver and f"driver {context.driver}", load_errors("cuda").get(status)
    facts = (
        f"CUDA error {status} ({error.name if error else f'CUresult {status}'})",
        driver,
        context.library,
    )
    return " · ".join(fact for fact in facts if fact)


def _not_initialized(cause: CudaCause, context: CudaContext) -> CudaCause:
    if context.blackwells < 2:
        return cause
    why = "with several Blackwell GPUs, nvidia_uvm's heterogeneous memory fails under address randomization"
    return replace(cause, why=why, near=("several-blackwells",))


def _no_device(cause: CudaCause, context: CudaContext) -> CudaCause:
    return known_cause("mig-without-instances") if context.unsliced else _unreached(cause, context)


def _unreached(cause: CudaCause, context: CudaContext) -> CudaCause:
    """NVML reaches the card and CUDA does not: what only CUDA needs is missing."""
    if context.wsl and (context.library is None or context.library.startswith("/usr/lib/wsl/")):
        return replace(
            cause, why="WSL no longer finds the Windows driver", of="wsl-driver-unreachable"
        )
    if context.wsl:
        why = f"libcuda is {context.library}, and the one that reaches Windows lies in /usr/lib/wsl/lib"
        return replace(known_cause("wsl-linux-driver"), why=why)
    if context.container is None and context.uvm is not False:
        return cause
    return CudaCause(
        "device-nodes-unusable", cause.message, "CUDA needs /dev/nvidia-uvm, which NVML does not"
    )


def _not_ready(cause: CudaCause, context: CudaContext) -> CudaCause:
    """Without an NVSwitch in sight there is no fabric to wait for here; from Blackwell on none is on the bus."""
    if context.switches != 0 or context.blackwells:
        return cause
    return replace(
        cause,
        message="the GPUs are not ready for CUDA",
        why="confidential computing waits for its ready state, or this guest's host has no fabric manager",
        near=("no-switch",),
    )


def _mismatch(cause: CudaCause, context: CudaContext) -> CudaCause:
    if context.compat:
        return _without_compat(context)
    if context.container:
        why = "the image contains its own driver libraries, or the host's driver was updated while the container ran"
        return replace(cause, why=why)
    if not context.differs:
        return cause
    kernel, library = context.driver, context.library_version
    return replace(cause, message=f"the kernel module ({kernel}) and libcuda ({library}) differ")


def _compat_unsupported(cause: CudaCause, context: CudaContext) -> CudaCause:
    if context.compat:
        return _without_compat(context)
    if context.container:
        why = "the image's CUDA is newer than the host's driver, or that was updated while the container ran"
        return replace(cause, why=why)
    if not context.differs:
        return cause
    return replace(
        cause, why=known_cause("driver-library-mismatch").why, of="driver-library-mismatch"
    )


def _without_compat(context: CudaContext) -> CudaCause:
    folder = str(PurePosixPath(context.library or "").parent)
    why = f"it comes from {folder}, NVIDIA's forward-compatibility package, which is for data-centre GPUs"
    return replace(
        known_cause("forward-compatibility-unsupported"), why=why, words=(("folder", folder),)
    )


_NARROWED: dict[int, Callable[[CudaCause, CudaContext], CudaCause]] = {
    3: _not_initialized,
    100: _no_device,
    101: _no_device,
    802: _not_ready,
    803: _mismatch,
    804: _compat_unsupported,
    999: _unreached,
}


KERNEL = Path(__file__).with_name("kernel.ptx")

_BUILDS_RUN = "builds with machine code for the GPU work without it"

# Why no kernel ran, and what is no fault of the machine, by CUresult.
UNCOMPILED = {
    218: f"the driver's PTX compiler refuses PTX that every release compiles: is it of another driver? {_BUILDS_RUN}",
    221: f"libnvidia-ptxjitcompiler.so.1 is missing here; {_BUILDS_RUN}",
    222: f"the driver's PTX compiler does not know this PTX; {_BUILDS_RUN}",
    223: f"compiling PTX is switched off here; {_BUILDS_RUN}",
}

# What leaves a card unproven and is no fault of it, by CUresult: busy, or a libcuda without a function that is called.
UNPROVEN = {
    2: ("gpu-memory-full", "{where} could not be tested: it has no memory free"),
    46: ("gpu-busy", "{where} could not be tested: another process holds it"),
    807: ("mps-unreachable", "{where} could not be tested: the MPS server is not ready"),
    808: (
        "mps-unreachable",
        "{where} could not be tested: the MPS server serves no further process",
    ),
    809: ("mps-unreachable", "{where} could not be tested: the MPS server has no connection left"),
    500: (
        "libcuda-incomplete",
        "{where} could not be tested: its libcuda lacks a function that the preflight calls",
    ),
}


def run_preflight(machine: Machine, reporter: Reporter) -> Preflight:
    """Run a kernel on every usable GPU at once, for at most 5 s and 5 s more for each.

    A machine with a blocking problem is not tried, nor are its GPUs with one, nor cards outside a scheduler's job.
    """
    planned = trials(machine, os.environ)
    limit = time_limit(len(planned))
    command = libcuda_command("preflight", str(KERNEL))
    children = [(command, child_environment(os.environ, visible)) for _, visible in planned]
    waiting = f"the driver initialises its GPUs, up to {limit:.0f} s"
    ended = run_children(children, limit, lambda: reporter.wait(waiting))
    findings = [
        judge_trial(gpu, machine, finished)
        for (gpu, _), finished in zip(planned, ended, strict=True)
    ]
    return Preflight(proofs_of(findings), problems_of(findings, FixContext.of_machine(machine)))


def trials(machine: Machine, environ: Mapping[str, str]) -> tuple[tuple[Gpu, str], ...]:
    """Choose what is tried: every MIG slice or card that this process was given and that the probe found usable.

    Each is a card and what its child finds in CUDA_VISIBLE_DEVICES.
    """
    if machine.blocking:
        return ()
    ours = [gpu for gpu in machine.gpus if vendor_of(gpu, machine) in {"nvidia", None}]
    given = job_devices(environ)
    return tuple(
        (gpu, name)
        for ordinal, gpu in enumerate(ours)
        if gpu.index not in machine.faulty
        for name in tuple(part.uuid for part in gpu.mig_devices) or (gpu.uuid or str(ordinal),)
        if given is None or is_visible(given, ordinal, gpu, name)
    )


def proofs_of(findings: Sequence[PreflightFinding]) -> tuple[GpuProof, ...]:
    """Give each GPU the worst of what its slices showed."""
    worst: dict[int, ProofOutcome] = {}
    for finding in findings:
        worst[finding.index] = max(
            worst.get(finding.index, "proven"), finding.outcome, key=OUTCOMES.index
        )
    return tuple(GpuProof(index, outcome) for index, outcome in worst.items())


@dataclass(frozen=True)
class PreflightFinding:
    """How one child ended; ``at_start`` where nothing about its own card had been asked yet."""

    index: int
    outcome: ProofOutcome
    cause: CudaCause | None = None
    facts: str | None = None
    at_start: bool = False


def judge_trial(gpu: Gpu, machine: Machine, finished: Finished) -> PreflightFinding:
    """Judge one child's answer, or its death."""
    answer = last_answer(finished)
    if answer is None:
        cause = known_cause("driver-hangs" if finished.status is None else "driver-crashes")
        return PreflightFinding(
            gpu.index, "failed", cause, f"libcuda {death(finished)}", at_start=True
        )
    if answer.get("path") is None:
        cause = known_cause("libcuda-missing")
        return PreflightFinding(gpu.index, "failed", cause, str(answer.get("error")), at_start=True)
    unsliced = gpu.mig and not gpu.mig_devices
    return _answered(
        gpu.index, answer, replace(CudaContext.of(machine, answer["path"]), unsliced=unsliced)
    )


def problems_of(
    findings: Sequence[PreflightFinding], fix_context: FixContext
) -> tuple[Finding, ...]:
    """Make one problem of each cause: of the GPUs that show it, or of the machine where no child got any further."""
    groups: dict[CudaCause, list[PreflightFinding]] = {}
    for finding in findings:
        if finding.cause is not None:
            groups.setdefault(finding.cause, []).append(finding)
    problems = []
    for cause, alike in groups.items():
        everywhere = len(alike) == len(findings) and all(finding.at_start for finding in alike)
        gpus = () if everywhere else tuple(dict.fromkeys(finding.index for finding in alike))
        hidden = gpus and cause.code == "cuda-no-device"
        named = replace(cause, code="gpu-hidden-from-cuda") if hidden else cause
        blocking = alike[0].outcome == "failed"
        problems.append(
            problem_of_cause(named, gpus, alike[0].facts, fix_context, blocking=blocking)
        )
    return tuple(problems)


def _answered(index: int, answer: Mapping[str, Any], context: CudaContext) -> PreflightFinding:
    if wrong := answer.get("wrong"):
        return PreflightFinding(
            index, "failed", known_cause("gpu-computes-wrong"), f"{wrong} of its words are wrong"
        )
    if wrong == 0:
        return PreflightFinding(index, "proven")
    status, instead = answer["status"], answer.get("instead")
    if instead == {"wrong": 0}:
        return PreflightFinding(
            index, "memory-only", _no_kernel(status), cuda_evidence(status, context)
        )
    if instead is not None and (status in UNCOMPILED or "wrong" in instead):
        return _answered(index, instead, context)
    at_start = answer["call"] == "cuInit"
    if status in UNPROVEN and not at_start:
        code, message = UNPROVEN[status]
        cause = replace(known_cause(code), message=message)
        return PreflightFinding(index, "unproven", cause, cuda_evidence(status, context))
    return PreflightFinding(
        index, "failed", cuda_cause(status, context), cuda_evidence(status, context), at_start
    )


def _no_kernel(status: int) -> CudaCause:
    no_kernel = known_cause("kernel-not-proven")
    if status in UNCOMPILED:
        return replace(no_kernel, why=UNCOMPILED[status])
    return CudaCause(
        "gpu-memory-full",
        no_kernel.message,
        "too little of its memory is free; other processes hold it",
    )
