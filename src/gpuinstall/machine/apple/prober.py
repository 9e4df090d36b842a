"""Apple's half of the probe: a Mac's own GPU, which is part of its chip, and a Python that cannot use it.

Format: ``key: value`` lines of sysctl(8).
"""

from __future__ import annotations

from gpuinstall.base.machine import Gpu
from gpuinstall.base.values import Value
from gpuinstall.machine.children import output_of
from gpuinstall.machine.prober import MachineFacts, Prober, VendorFindings
from gpuinstall.machine.source import Source
from gpuinstall.machine.symptoms import findings_of

_SECONDS = 10
_SYSCTL = (
    "/usr/sbin/sysctl",
    "kern.osproductversion",
    "machdep.cpu.brand_string",
    "kern.hv_vmm_present",
)


class AppleEvidence(Value):
    """The facts of the machine, and what macOS told."""

    facts: MachineFacts
    macos: str | None = None
    """The release, ``14.5``."""
    chip: str | None = None
    is_virtual: bool = False

    @property
    def is_apple_silicon(self) -> bool:
        """Whether the processor is Apple's own, whatever this Python was made for."""
        host = self.facts.host
        return host.os == "macos" and host.arch == "arm64"


class AppleProber(Prober):
    """The GPU of a Mac with Apple silicon."""

    vendor = "apple"

    def read(
        self,
        source: Source,
        facts: MachineFacts,
    ) -> AppleEvidence:
        """Ask macOS' own program."""
        if facts.host.os != "macos":
            return AppleEvidence(facts)
        answers = {}
        text = source.answer(
            "sysctl.txt", lambda: output_of(*_SYSCTL, seconds=_SECONDS)
        )
        for line in text.splitlines():
            key, _, value = line.partition(":")
            answers[key] = value.strip()
        return AppleEvidence(
            facts,
            macos=answers.get("kern.osproductversion"),
            chip=answers.get("machdep.cpu.brand_string"),
            is_virtual=answers.get("kern.hv_vmm_present") == "1",
        )

    def conclude(self, evidence: AppleEvidence) -> VendorFindings:
        """Return the GPU, and where Python or a virtual machine stands before it. Pure."""
        # The GPU of a virtual Mac is a stand-in, whose kernels cannot be trusted.
        is_usable = evidence.is_apple_silicon and not evidence.is_virtual
        gpu = Gpu(
            0,
            evidence.chip or "Apple GPU",
            found_via="sysctl",
            vendor="apple",
            architecture="metal",
        )
        return VendorFindings(
            gpus=(gpu,) if is_usable else (),
            problems=findings_of(
                "apple",
                {
                    "translated": evidence.facts.host.translated
                    and evidence.is_apple_silicon,
                    "virtual": evidence.is_virtual and evidence.is_apple_silicon,
                },
                evidence.facts.place,
                evidence="sysctl.proc_translated: 1",
            ),
            shows_gpu=is_usable,
            facts={"macos": evidence.macos} if evidence.macos else {},
        )
