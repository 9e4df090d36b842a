"""Nodes that a choice cannot tell apart, put together: thousands of nodes come to a handful of classes.

And a range of GPUs and drivers as such classes, one for each GPU under each driver branch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpuinstall.catalog import Catalog
from gpuinstall.catalog.gpus import other_chips, series_of
from gpuinstall.errors import UsageError
from gpuinstall.fleet.documents import UnservedNodes
from gpuinstall.fleet.hostlist import NodeName
from gpuinstall.machine import MAKERS_WITH_FACTS, Driver, Gpu, Machine
from gpuinstall.support import kinds_of, known_drivers
from gpuinstall.words import gpu_in_words

_OF_A_GPU = ("index", "name", "compute_capability", "vendor", "architecture", "memory_mib", "mig")
"""What tells GPUs apart for a choice."""


@dataclass(frozen=True)
class NodeClass:
    """Nodes of one kind: the machine that stands for all of them, and their names in order."""

    machine: Machine
    nodes: tuple[NodeName, ...]

    @property
    def gpus(self) -> str:
        """The GPUs as people name them: ``8 × H100 80GB HBM3 (sm_90)``."""
        kinds = Counter((gpu.label, gpu.code_name) for gpu in self.machine.gpus)
        return ", ".join(f"{count} × {name} ({chip or 'unknown'})" for (name, chip), count in kinds.items()) or "no GPU"

    @property
    def label(self) -> str:
        """The class in a line: GPUs, driver, and the platform where it is not the usual one."""
        driver, platform = self.machine.driver, f"{self.machine.os} {self.machine.arch}"
        version = f"driver {driver.version or driver.cuda}" if driver else None
        return " · ".join(filter(None, (self.gpus, version, platform if platform != "linux x86_64" else None)))


def node_classes(surveyed: Iterable[tuple[NodeName, Any]]) -> tuple[tuple[NodeClass, ...], tuple[UnservedNodes, ...]]:
    """Put nodes, each with its Machine document, into classes, the largest first; those that have none are apart.

    Only one machine of each class is read as a whole.
    """
    members: dict[Hashable, list[NodeName]] = {}
    documents: dict[Hashable, Any] = {}
    for node, document in surveyed:
        kind = _kind(document)
        key = node if kind is None else kind
        documents.setdefault(key, document)
        members.setdefault(key, []).append(node)
    kinds = [_read(documents[key], tuple(nodes)) for key, nodes in members.items()]
    classes = [kind for kind in kinds if isinstance(kind, NodeClass)]
    classes.sort(key=lambda kind: (-len(kind.nodes), kind.nodes[0]))
    return tuple(classes), tuple(kind for kind in kinds if isinstance(kind, UnservedNodes))


def _read(document: Any, nodes: tuple[NodeName, ...]) -> NodeClass | UnservedNodes:
    try:
        return NodeClass(Machine.from_dict(document), nodes)
    except UsageError as error:
        return UnservedNodes(nodes, error.code, error.message, "gpuinstall fleet survey --resume")


def _kind(document: Any) -> Hashable:
    """All that a choice depends on, not single cards nor where they are on the bus; None for what is no machine."""
    try:
        kind = _facts(document)
        hash(kind)
    except (AttributeError, TypeError):
        return None
    return kind


def _facts(document: Mapping[str, Any]) -> tuple[Hashable, ...]:
    driver, pythons = document.get("driver") or {}, document.get("pythons")
    return (
        document.get("os"),
        document.get("arch"),
        document.get("libc"),
        document.get("glibc"),
        driver.get("version"),
        driver.get("cuda"),
        str(document.get("environment")),
        None if pythons is None else tuple(dict.fromkeys(".".join(python.split(".")[:2]) for python in pythons)),
        tuple(tuple(gpu.get(key) for key in _OF_A_GPU) for gpu in document.get("gpus") or ()),
        tuple(
            (problem.get("code"), tuple(problem.get("gpus") or ()))
            for problem in document.get("problems") or ()
            if problem.get("blocking")
        ),
        *(str(document[maker]) for maker in MAKERS_WITH_FACTS if maker in document),
    )


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
