"""Prober for NVIDIA GPUs and drivers."""

from __future__ import annotations

from gpuinstall.base.machine import JetsonRelease, Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.machine.bus import read_adapters
from gpuinstall.machine.nvidia import linux
from gpuinstall.machine.nvidia.diagnosis import (
    create_driver_notes,
    diagnose_machine,
    find_gpu_faults,
)
from gpuinstall.machine.nvidia.evidence import (
    NvidiaEvidence,
    read_jetson,
)
from gpuinstall.machine.nvidia.gpus import find_driver, list_gpus
from gpuinstall.machine.nvidia.libraries import (
    LIBCUDA,
    NO_PERMISSION,
    NVML,
    LibcudaFacts,
    NvmlFacts,
    can_find_library,
    query_driver,
)
from gpuinstall.machine.prober import MachineFacts, Preflight, Prober, VendorFindings
from gpuinstall.machine.source import Source


class NvidiaProber(Prober):
    """Prober for NVIDIA GPUs and the driver."""

    vendor = "nvidia"
    job_variables = ("CUDA_VISIBLE_DEVICES",)

    def findings(self, source: Source, facts: MachineFacts) -> VendorFindings:
        """Query NVML and libcuda, and read the NVIDIA driver's files."""
        evidence = _read_evidence(source, facts)
        detected = list_gpus(evidence)
        fault = diagnose_machine(evidence)
        faults = [fault] if fault else []
        faults += find_gpu_faults(evidence, detected, driver_works=fault is None)
        return VendorFindings(
            gpus=tuple(card.gpu for card in detected),
            problems=(*faults, *create_driver_notes(evidence)),
            shows_gpu=evidence.shows_gpu,
            driver=find_driver(evidence),
            jetson=JetsonRelease(evidence.jetson.l4t) if evidence.jetson else None,
            devices=evidence.facts.devices,
        )

    def preflight(
        self,
        machine: Machine,
        reporter: Reporter,
    ) -> Preflight:
        """Run a kernel on each usable GPU."""
        from gpuinstall.machine.nvidia.preflight import run_preflight

        return run_preflight(machine, self.find_usable_parts(machine), reporter)


def _read_evidence(source: Source, facts: MachineFacts) -> NvidiaEvidence:
    jetson = read_jetson(source, facts.host.release)
    if jetson or _may_have_driver(source, facts):
        nvml, cuda = query_driver(source)
    else:
        nvml, cuda = NvmlFacts(fault="missing"), LibcudaFacts(fault="missing")
    if facts.container.has_shared_bus:
        # NVML also lists the GPUs of other jobs and containers, with the error "no permission".
        gpus = [gpu for gpu in nvml.gpus if gpu.error != NO_PERMISSION]
        nvml = replace(nvml, gpus=tuple(gpus))
    # Query Windows only if NVML does not work, because this takes seconds.
    if facts.host.os == "windows" and not nvml.is_complete:
        facts = replace(facts, devices=read_adapters(source))
    # A job sees the device nodes of the whole host, but NVML lists only the job's GPUs.
    is_bare_job = facts.container.engine is None and facts.container.job is not None
    return NvidiaEvidence(
        facts=facts,
        nodes=() if is_bare_job and nvml.is_complete else linux.list_gpu_nodes(source),
        jetson=jetson,
        windows_libraries=linux.has_windows_libraries(source),
        shadow=linux.find_linux_libcuda(source) if facts.wsl else None,
        devices=source.variable("NVIDIA_VISIBLE_DEVICES"),
        capabilities=source.variable("NVIDIA_DRIVER_CAPABILITIES"),
        visible=source.variable("CUDA_VISIBLE_DEVICES"),
        nvml=nvml,
        cuda=cuda,
        module=linux.parse_proc_version(source.text(linux.PROC_VERSION) or ""),
        on_disk=linux.has_module(source, facts.host.release),
        secure_boot=linux.parse_secure_boot(source.text(linux.SECURE_BOOT)),
        refused=linux.describe_refused_nodes(source),
    )


def _may_have_driver(source: Source, facts: MachineFacts) -> bool:
    """Return whether the machine may have an NVIDIA driver or GPU.

    Starting the two child processes on a machine without a driver would take longer than the rest of the probe.
    """
    return (
        facts.host.os != "linux"
        or facts.wsl is not None
        or any(device.vendor == "nvidia" for device in facts.devices)
        or bool(source.names("/dev", "nvidia"))
        or source.text(linux.PROC_VERSION) is not None
        or any(can_find_library(source, library) for library in (NVML, LIBCUDA))
    )
