"""All locks of a folder as one workspace of pixi: a platform for each lock and each range of GPUs. Pure.

``__cuda`` and ``__cuda_arch`` of a platform are what the solver may assume, so that a machine has at least them; of the
platforms that a machine has, the first one counts (prefix-dev/pixi docs/workspace/multi_platform_configuration.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement

from gpuinstall.base.text import visible
from gpuinstall.export.needs import machine_needs, neighbours
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
    cuda: CudaVersion | None = None
    """The oldest that the driver may report; None: no GPU is needed, or one of a maker whom conda has no package for."""
    first: str = ""
    """The lowest compute capability."""
    last: str = ""
    """The highest, which pixi cannot be told."""
    last_branch: int | None = None

    @property
    def name(self) -> str:
        """Its name in the manifest."""
        system = PLATFORM_NAMES[self.needs.os, self.needs.arch]
        name = f"{name_for_others(self.lock).lower()}-{system}"
        return f"{name}-sm{self.first.replace('.', '')}" if self.cuda else name

    @property
    def line(self) -> str:
        """Its line in the manifest."""
        fields = [f'name = "{self.name}"']
        fields.append(f'platform = "{PLATFORM_NAMES[self.needs.os, self.needs.arch]}"')
        if self.needs.glibc:
            fields.append(f'glibc = "{self.needs.glibc}"')
        if self.cuda:
            fields.append(f'cuda = {{ driver = "{self.cuda}", arch = "{self.first}" }}')
        return f"  {{ {', '.join(fields)} }},"


def pixi_workspace(locks: Sequence[Lock], catalog: Catalog) -> str:
    """Return ``pixi.toml`` for several locks.

    Raises:
        UsageError: if they are for different Pythons, or others cannot use a package's address.
    """
    python = one_python(locks)
    platforms: list[_Platform] = []
    for lock in locks:
        for needs in machine_needs([lock], catalog):
            platforms += _platforms_of(lock, needs)
    # The first that a machine has counts: the most demanding stands first, one for the CPU last.
    platforms.sort(key=_demand, reverse=True)
    lines = [
        f"# From {visible(', '.join(lock.name for lock in locks))}: pixi install",
        "# Each machine has the first platform whose CUDA and compute capability it reaches.",
        *_unsaid(platforms),
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


def _platforms_of(lock: Lock, needs: MachineNeeds) -> Iterator[_Platform]:
    if needs.maker != "nvidia":
        yield _Platform(lock, needs)
        return
    for gpus in needs.gpus:
        for first, last in neighbours(gpus.codes, needs.known_codes):
            yield _Platform(
                lock,
                needs,
                cuda=gpus.cudas[0],
                first=first,
                last=last,
                last_branch=gpus.last_branch,
            )


def _demand(platform: _Platform) -> tuple[int, ...]:
    """Sort platforms: by the CUDA, then the compute capability, then the build's own CUDA."""
    capability = tuple(map(int, platform.first.split("."))) if platform.first else (0, 0)
    return (*(platform.cuda or (0, 0)), *capability)


def _unsaid(platforms: Sequence[_Platform]) -> Iterator[str]:
    """Yield what pixi cannot be told, and what finds it out."""
    with_gpus = [platform for platform in platforms if platform.cuda]
    if any(platform.needs.maker not in {None, "nvidia"} for platform in platforms):
        yield "# It has no words for AMD's and Intel's GPUs: leave out what your machines do not have."
    if not with_gpus:
        return
    yield "# It has no words for an end, which gpuinstall run --any finds out at the start:"
    for platform in with_gpus:
        end = f"up to compute capability {platform.last}"
        if platform.last_branch:
            end += f", driver {platform.last_branch}"
        yield f"#   {platform.name}: {end}"


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
