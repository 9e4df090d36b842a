"""All locks of a folder as one workspace of pixi: a platform for each lock and system. Pure.

``__cuda`` and ``__cuda_arch`` of a platform are what the solver may assume, so that a machine has at least them; of the
platforms that a machine has, the first one counts (prefix-dev/pixi docs/workspace/multi_platform_configuration.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement

from gpuinstall.base.text import visible
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.export.needs import machine_needs
from gpuinstall.export.pins import (
    PLATFORM_NAMES,
    name_for_others,
    one_python,
    pins,
    without_folders,
)
from gpuinstall.lock.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.base.versions import CudaVersion
    from gpuinstall.catalog import Catalog
    from gpuinstall.export.needs import MachineNeeds
    from gpuinstall.lock.lock import Lock


class _Platform(NamedTuple):
    """One entry of ``platforms``."""

    lock: Lock
    needs: MachineNeeds

    @property
    def system(self) -> str:
        """Its system, as conda calls it."""
        return PLATFORM_NAMES[self.needs.os, self.needs.arch]

    @property
    def name(self) -> str:
        """Its name in the manifest."""
        return f"{name_for_others(self.lock).lower()}-{self.system}"

    @property
    def least(self) -> tuple[CudaVersion, ComputeCapability] | None:
        """The oldest CUDA of a driver and the lowest compute capability; None: no GPU of NVIDIA's is needed."""
        cudas = [gpus.cuda for gpus in self.needs.gpus if gpus.cuda]
        if not cudas:
            return None
        return min(cudas), min(map(ComputeCapability.parse, self.needs.codes))

    @property
    def line(self) -> str:
        """Its line in the manifest."""
        fields = [f'name = "{self.name}"', f'platform = "{self.system}"']
        if self.needs.glibc:
            fields.append(f'glibc = "{self.needs.glibc}"')
        if self.least:
            cuda, capability = self.least
            fields.append(f'cuda = {{ driver = "{cuda}", arch = "{capability}" }}')
        return f"  {{ {', '.join(fields)} }},"


def pixi_workspace(locks: Sequence[Lock], catalog: Catalog) -> str:
    """Return ``pixi.toml`` for several locks.

    Raises:
        UsageError: if they are for different Pythons, or others cannot use a package's address.
    """
    python = one_python(locks)
    platforms = [
        _Platform(lock, needs) for lock in locks for needs in machine_needs([lock], catalog)
    ]
    # The first that a machine has counts: the most demanding stands first, one for the CPU last.
    platforms.sort(key=lambda platform: platform.least or (), reverse=True)
    lines = [
        f"# From {visible(', '.join(lock.name for lock in locks))}: pixi install",
        "# Each machine has the first platform whose CUDA and compute capability it reaches; which GPUs are too",
        "# new for it, or AMD's and Intel's, pixi has no words for: gpuinstall run --any finds out at the start.",
        *"".join(map(without_folders, locks)).splitlines(),
        "[workspace]",
        'name = "torch"',
        'channels = ["conda-forge"]',
        "platforms = [",
        *(platform.line for platform in platforms),
        "]",
        "",
        "[dependencies]",
        f'python = "{python}.*"',
    ]
    for platform in platforms:
        lines += ["", f'[target."{platform.name}".pypi-dependencies]']
        target = Target("cpu", platform.needs.os, platform.needs.arch)
        lines += pixi_dependencies(platform.lock, [target.environment(python)])
    return "\n".join(lines) + "\n"


def pixi_dependencies(lock: Lock, systems: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Yield a line for each package of a lock that one of the systems, given by the values of markers, has."""
    for pin in pins(lock):
        requirement = Requirement(pin.requirement)
        marker = requirement.marker
        if marker and not any(marker.evaluate(dict(values)) for values in systems):
            continue
        value = json.dumps(str(requirement.specifier))
        if requirement.url:
            value = f"{{ url = {json.dumps(requirement.url)} }}"
        yield f"{requirement.name} = {value}"
