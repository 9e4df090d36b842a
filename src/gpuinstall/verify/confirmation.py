"""Whether the torch that was installed has the code for which it was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.learned.known import known_catalog
from gpuinstall.verify.coverage import find_build
from gpuinstall.verify.verdict import CheckResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.catalog.build import Build
    from gpuinstall.reporter import Reporter
    from gpuinstall.verify.diagnosis import ProofContext
    from gpuinstall.verify.verdict import Device

CONFIRMED = "catalogue"
_MADE_LATER = "compute_"
"""Code that is compiled at first use may be in libraries alone, and then torch's own list does not name it."""


def confirm(
    devices: list[Device], architectures: Sequence[str], build: Build | None, proof: ProofContext, reporter: Reporter
) -> list[Device]:
    """Fail every device where torch names other architectures than the build that it was made of.

    Where the catalogue itself is not sure of a build, that is a warning.
    """
    if build is None or not (architectures and build.code):
        return devices
    if _machine_code(build.code) == _machine_code(architectures):
        return devices
    said = f"its wheel, read on {build.learned}, named" if build.learned else "the catalogue has"
    found = f"torch {build.name} has code for {' '.join(architectures)}, and {said} {' '.join(build.code)}"
    if build.learned is None and build.confidence != "high":
        reporter.warn(f"{found}: please report it")
        return devices
    check = CheckResult(
        CONFIRMED,
        "failed",
        message=found,
        fix=(f"gpuinstall install --upgrade{proof.words.get('into', '')}", "please report it"),
    )
    return [device.with_checks([check] if device.checks else ()) for device in devices]


def known_build(proof: ProofContext) -> Build | None:
    """Find the build that an environment of ours was made of; of others' nobody knows where their torch is from."""
    if not (proof.ours and proof.torch.backend):
        return None
    return find_build(known_catalog(), proof.machine, proof.torch.version or "", proof.torch.backend)


def _machine_code(names: Sequence[str]) -> set[str]:
    return {name for name in names if not name.startswith(_MADE_LATER)}
