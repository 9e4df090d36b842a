"""Whether a build has code for the GPUs of a machine, as the catalogue and the maker's rules know it. Pure."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from gpuinstall.backend import known_backend
from gpuinstall.vendors import VENDORS, rules_for, vendor_of
from gpuinstall.vendors.protocol import Code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.backend import Backend
    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.vendors.protocol import Rules


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
    build = backend and find_build(catalog, machine, version, backend)
    if not (build and build.code and backend):
        return
    rules = rules_for(machine, catalog, (backend.kind,))
    for gpu in machine.gpus:
        if VENDORS[vendor_of(gpu, machine) or rules.vendor].kind != backend.kind or rules.architecture(gpu) is None:
            continue
        code = rules.code(build, gpu)
        if not isinstance(code, Code):
            yield Uncovered(gpu, code.message, no_code_cause(rules, gpu, build.code))


def _backend(version: str, toolkit: str | None) -> Backend | None:
    label = version.partition("+")[2]
    tag = label or (f"cu{toolkit.replace('.', '')}" if toolkit else None)
    return known_backend(tag) or known_backend(label.partition(".")[0])


def find_build(catalog: Catalog, machine: Machine, version: str, backend: Backend) -> Build | None:
    """Find a build by torch's version, of which the label does not count."""
    with suppress(InvalidVersion):
        torch = Version(Version(version).public)
        builds = catalog.serving(backend.kind).builds_for(machine.os, machine.arch)
        return next((build for build in builds if (build.torch, build.backend) == (torch, backend)), None)
    return None


def no_code_cause(rules: Rules, gpu: Gpu, architectures: Sequence[str]) -> str:
    """Tell a GPU that is newer than a build's code (F38) from one that is older (F37)."""
    unnamed = replace(gpu, compute_capability=None)
    newest = max(rules.rank(replace(unnamed, architecture=name)) for name in architectures)
    return "F38" if rules.rank(gpu) > newest else "F37"
