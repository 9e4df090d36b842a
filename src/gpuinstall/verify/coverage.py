"""Whether a build has code for the GPUs of a machine, as the catalogue and the maker's rules know it.

And whether the torch that was installed has the code for which it was chosen.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from gpuinstall.backend import known_backend
from gpuinstall.learned.store import known_catalog
from gpuinstall.vendors import VENDORS, rules_for, vendor_of
from gpuinstall.vendors.protocol import Code
from gpuinstall.verify.verdict import CheckResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


@dataclass(frozen=True)
class Uncovered:
    """A GPU that a build has no code for: the rules' own words, and the entry of the failure catalogue."""

    gpu: Gpu
    message: str
    cause: str


def uncovered(machine: Machine, catalog: Catalog, version: str, toolkit: str | None) -> Iterator[Uncovered]:
    """Find the GPUs that a build of the catalogue has no code for; none where the build is not known.

    ``version`` is torch's own; ``toolkit`` is the CUDA that it names (``13.0``), for a version without a label.
    """
    backend = _backend(version, toolkit)
    build = backend and _find_build(catalog, machine, version, backend)
    if not (build and build.code and backend):
        return
    rules = rules_for(machine, catalog, (backend.kind,))
    for gpu in machine.gpus:
        if VENDORS[vendor_of(gpu, machine) or rules.vendor].kind != backend.kind or rules.architecture(gpu) is None:
            continue
        code = rules.code(build, gpu)
        if not isinstance(code, Code):
            yield Uncovered(gpu, code.message, no_code_cause(rules, gpu, build.code))


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
    return _find_build(known_catalog(), proof.machine, proof.torch.version or "", proof.torch.backend)


def no_code_cause(rules: Rules, gpu: Gpu, architectures: Sequence[str]) -> str:
    """Tell a GPU that is newer than a build's code from one that is older, where its maker's numbers tell that."""
    unnamed = replace(gpu, compute_capability=None)
    newest = max(rules.rank(replace(unnamed, architecture=name)) for name in architectures)
    return rules.no_code_causes[rules.rank(gpu) > newest]


def _find_build(catalog: Catalog, machine: Machine, version: str, backend: Backend) -> Build | None:
    """Find a build by torch's version, of which the label does not count."""
    with suppress(InvalidVersion):
        torch = Version(Version(version).public)
        builds = catalog.serving(backend.kind).builds_for(machine.os, machine.arch)
        return next((build for build in builds if (build.torch, build.backend) == (torch, backend)), None)
    return None


def _backend(version: str, toolkit: str | None) -> Backend | None:
    label = version.partition("+")[2]
    tag = label or (f"cu{toolkit.replace('.', '')}" if toolkit else None)
    return known_backend(tag) or known_backend(label.partition(".")[0])


def _machine_code(names: Sequence[str]) -> set[str]:
    return {name for name in names if not name.startswith(_MADE_LATER)}
