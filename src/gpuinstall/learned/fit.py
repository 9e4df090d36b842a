"""Whether a package with GPU code of its own runs on GPUs beside a build of torch; pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.vendors.protocol import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.catalog.build import Build
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.machine import Gpu
    from gpuinstall.vendors.protocol import Rules

    Served = Iterable[tuple[Rules, Gpu]]


def as_build(row: LearnedRow, build: Build) -> Build:
    """What the rules are asked about a package: a build with its code and its toolkit."""
    return replace(build, code=row.architectures, toolkit=row.toolkit or build.toolkit, libraries=())


def without_code(row: LearnedRow, build: Build, gpus: Served) -> list[tuple[Rules, Gpu]]:
    """The GPUs that a package with GPU code has none for."""
    made = as_build(row, build)
    return [(rules, gpu) for rules, gpu in gpus if row.architectures and not isinstance(rules.code(made, gpu), Code)]


def misfit(row: LearnedRow, build: Build, gpus: Served) -> str | None:
    """Say why a package does not run on the GPUs; one without GPU code runs everywhere."""
    if not row.architectures:
        return None
    served, made = tuple(gpus), as_build(row, build)
    if without := without_code(row, build, served):
        names = " and ".join(dict.fromkeys(gpu.label for _, gpu in without))
        return f"has no code for {names}: {row.witness} has {' '.join(row.architectures)}"
    for rules, _ in served:
        if refused := rules.against_driver(made):
            return f"does not run on {rules.driver}: {made_with(row, made, rules)}, and {refused.message}"
    return None


def made_with(row: LearnedRow, made: Build, rules: Rules) -> str:
    """Say what a package was made with."""
    return f"{row.witness} is made with {rules.software} {'.'.join(map(str, made.toolkit or ()))}"
