"""Another build where a kernel failed: one that differs in what failed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.verify.verdict import Verdict

ARCHITECTURE = frozenset({"F37", "F38", "F40", "F55", "F67"})
"""The wheel has no code for the GPU, or none that runs."""

CUDA = frozenset({"F02", "F19", "F39"})
"""The driver does not serve the wheel's CUDA, or not all of it."""


def without(catalog: Catalog, build: Build, verdict: Verdict) -> Catalog | None:
    """The catalogue without the builds that would fail as ``build`` did; None where another build would not help."""
    causes = {check.cause for device in verdict.devices for check in device.checks if check.status == "failed"}
    if causes & ARCHITECTURE:
        return replace(catalog, builds=tuple(other for other in catalog.builds if _code(other) != _code(build)))
    if causes & CUDA:
        return replace(catalog, builds=tuple(other for other in catalog.builds if _major(other) != _major(build)))
    return None


def _code(build: Build) -> tuple[str, ...]:
    return build.code


def _major(build: Build) -> int | None:
    return build.toolkit and build.toolkit[0]
