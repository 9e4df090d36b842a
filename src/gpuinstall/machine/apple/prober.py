"""Prober for Apple silicon GPUs, based on sysctl(8)."""

from __future__ import annotations

from gpuinstall.base.machine import Gpu
from gpuinstall.machine.children import read_output
from gpuinstall.machine.prober import MachineFacts, Prober, VendorFindings
from gpuinstall.machine.source import Source
from gpuinstall.machine.symptoms import create_findings

_SECONDS = 10
_SYSCTL = (
    "/usr/sbin/sysctl",
    "kern.osproductversion",
    "machdep.cpu.brand_string",
    "kern.hv_vmm_present",
)


class AppleProber(Prober):
    """Prober for Apple silicon GPUs."""

    vendor = "apple"

    def findings(self, source: Source, facts: MachineFacts) -> VendorFindings:
        """Read the Mac's GPU, unusable in Rosetta and virtual machines."""
        answers = {}
        if facts.machine.os == "macos":
            text = source.answer(
                "sysctl.txt", lambda: read_output(*_SYSCTL, seconds=_SECONDS)
            )
            for line in text.splitlines():
                key, _, value = line.partition(":")
                answers[key] = value.strip()
        is_silicon = facts.machine.os == "macos" and facts.machine.arch == "arm64"
        # Kernels may fail on the simulated GPU of a virtual Mac.
        is_virtual = answers.get("kern.hv_vmm_present") == "1"
        is_usable = is_silicon and not is_virtual
        gpu = Gpu(
            0,
            answers.get("machdep.cpu.brand_string") or "Apple GPU",
            found_via="sysctl",
            vendor="apple",
            architecture="metal",
        )
        macos = answers.get("kern.osproductversion")
        circumstances = {
            "translated": facts.host.translated and is_silicon,
            "virtual": is_virtual and is_silicon,
        }
        evidence = "sysctl.proc_translated: 1"
        return VendorFindings(
            gpus=(gpu,) if is_usable else (),
            problems=create_findings(
                "apple", circumstances, facts.create_fix_context, evidence
            ),
            facts={"macos": macos} if macos else {},
        )
