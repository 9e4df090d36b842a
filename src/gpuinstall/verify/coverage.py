"""Whether a build has code for the GPUs of a machine, as the catalogue and the maker's rules know it.

And whether the torch that was installed has the code for which it was chosen.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from gpuinstall.finding import CheckResult
from gpuinstall.learned.store import known_catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.backend import Backend
    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.vendors.protocol import Rules
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
    differing = {*architectures} ^ {*build.code}
    if all(name.startswith(_MADE_LATER) for name in differing):
        return devices
    source = f"its wheel, read on {build.learned}, named" if build.learned else "the catalogue has"
    message = f"torch {build.name} has code for {' '.join(architectures)}, and {source} {' '.join(build.code)}"
    if build.learned is None and build.confidence != "high":
        reporter.warn(f"{message}: please report it")
        return devices
    check = CheckResult(
        CONFIRMED,
        "failed",
        message=message,
        fixes=(f"gpuinstall install --upgrade{proof.words.get('into', '')}", "please report it"),
    )
    return [device.with_checks([check] if device.checks else ()) for device in devices]


def build_of(proof: ProofContext) -> Build | None:
    """Find the build that an environment of ours was made of; of others' nobody knows where their torch is from."""
    if not (proof.ours and proof.torch.backend):
        return None
    return find_build(known_catalog(), proof.machine, proof.torch.version or "", proof.torch.backend)


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
        return next((build for build in builds if (build.torch, build.backend) == (torch, backend)), None)
    return None
