"""A range of GPUs and drivers, one class for each GPU under each driver branch, and what a lock serves of it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpuinstall.catalog.gpus import other_chips, series_of
from gpuinstall.errors import UsageError
from gpuinstall.fleet.classes import NodeClass
from gpuinstall.machine import Driver, Gpu, Machine
from gpuinstall.support import kinds_of, known_drivers
from gpuinstall.words import gpu_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuinstall.catalog import Catalog


def classes_in(names: Sequence[str], drivers: str | None, arch: str, catalog: Catalog) -> tuple[NodeClass, ...]:
    """Make the classes of GPUs, by name or series (``RTX 30``), under the driver branches of ``>=470`` or ``570``.

    No name: every GPU that the catalogue knows. GPUs whose builds ask for no driver come once. Raise UsageError for
    what is none.
    """
    try:
        wanted = SpecifierSet(f"=={drivers}" if (drivers or "").isdigit() else drivers or "")
    except InvalidSpecifier:
        message = f"{drivers!r} is not a range of driver branches"
        raise UsageError("driver-malformed", message, hint="the same with --driver '>=525,<590'") from None
    branches = [driver for driver in known_drivers(catalog) if str(driver) in wanted]
    machines = []
    for gpu in _gpus(names, catalog):
        under = [Driver(branch, found_via="words") for branch in branches] if gpu.compute_capability else [None]
        machines += [Machine("linux", arch, driver=driver, gpus=(gpu,)) for driver in under]
    return tuple(NodeClass(machine, ()) for machine in machines)


def spanned(classes: Iterable[NodeClass]) -> str:
    """Write classes by their GPUs and drivers: ``RTX 30, A800 with driver 525–575``."""
    branches: dict[str, list[str]] = defaultdict(list)
    for kind in classes:
        driver = kind.machine.driver
        branches[kind.machine.gpus[0].label].append(str(driver.version) if driver else "")
    gpus: dict[str, list[str]] = defaultdict(list)
    for name, versions in branches.items():
        gpus["–".join(dict.fromkeys((versions[0], versions[-1])))].append(name)
    return "; ".join(f"{', '.join(names)}{drivers and f' with driver {drivers}'}" for drivers, names in gpus.items())


def _gpus(names: Sequence[str], catalog: Catalog) -> Iterator[Gpu]:
    """Each GPU once by the code that it runs, under the names that were given."""
    series = {name.lower(): kind for kind in kinds_of(catalog).values() for name in series_of(str(kind))}
    if not names:
        for chip in kinds_of(catalog).values():
            yield Gpu(0, "/".join(series_of(str(chip))) or chip.sm, compute_capability=chip, found_via="words")
        for other in (other for other in other_chips() if other.os in {None, "linux"}):
            yield Gpu(0, other.name, vendor=other.maker, architecture=other.architecture, found_via="words")
    for name in names:
        kind = series.get(name.lower())
        yield Gpu(0, name, compute_capability=kind, found_via="words") if kind else gpu_in_words(name)
