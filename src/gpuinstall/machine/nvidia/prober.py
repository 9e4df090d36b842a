"""Prober for NVIDIA GPUs and drivers."""

from __future__ import annotations

from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.vendors import NVIDIA
from gpuinstall.machine.nvidia.diagnosis import find_problems
from gpuinstall.machine.nvidia.evidence import read_evidence
from gpuinstall.machine.nvidia.gpus import find_driver, list_gpus
from gpuinstall.machine.prober import MachineFacts, Preflight, Prober, VendorFindings
from gpuinstall.machine.source import Source


class NvidiaProber(Prober):
    """Prober for NVIDIA GPUs and the driver."""

    vendor = NVIDIA.name
    job_variables = ("CUDA_VISIBLE_DEVICES",)

    def findings(self, source: Source, facts: MachineFacts) -> VendorFindings:
        """Query NVML and libcuda, and read the NVIDIA driver's files."""
        evidence = read_evidence(source, facts)
        detected = list_gpus(evidence)
        return VendorFindings(
            gpus=tuple(found.gpu for found in detected),
            problems=tuple(find_problems(evidence, detected)),
            shows_gpu=evidence.shows_gpu,
            driver=find_driver(evidence),
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
