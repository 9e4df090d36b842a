"""Nodes that a choice cannot tell apart, put together: thousands come to a handful of classes.

And a range of GPUs and drivers as such classes, one for each GPU under each driver branch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpuinstall.catalog import Catalog
from gpuinstall.catalog.gpus import card_capabilities, other_chips, series_of
from gpuinstall.errors import UsageError
from gpuinstall.fleet.documents import UnservedNodes
from gpuinstall.fleet.hostlist import NodeName
from gpuinstall.machine import MAKERS_WITH_FACTS, Driver, Gpu, Machine
from gpuinstall.values import dataclass
from gpuinstall.words import gpu_in_words

_OF_A_GPU = (
    "index",
    "name",
    "compute_capability",
    "vendor",
    "architecture",
    "memory_mib",
    "mig",
)
"""What tells GPUs apart for a choice."""


@dataclass(frozen=True)
class NodeClass:
    """Nodes of one kind: the machine that stands for all of them, and their names in order."""

    machine: Machine
    nodes: tuple[NodeName, ...]

    @property
    def gpus(self) -> str:
        """The GPUs as people name them: ``8 × H100 80GB HBM3 (sm_90)``."""
        kinds = Counter(f"{gpu.label} ({gpu.code_name or 'unknown'})" for gpu in self.machine.gpus)
        return ", ".join(f"{count} × {kind}" for kind, count in kinds.items()) or "no GPU"

    @property
    def label(self) -> str:
        """The class in a line: GPUs, driver, and the platform if it is not the usual one."""
        words = [self.gpus]
        driver = self.machine.driver
        if driver:
            words.append(f"driver {driver.version or driver.cuda}")
        platform = f"{self.machine.os} {self.machine.arch}"
        if platform != "linux x86_64":
            words.append(platform)
        return " · ".join(words)


def node_classes(
    surveyed: Iterable[tuple[NodeName, Any]],
) -> tuple[tuple[NodeClass, ...], tuple[UnservedNodes, ...]]:
    """Return the classes of nodes, the largest first, and the nodes whose document is malformed.

    Only one machine of each class is read as a whole.

    Args:
        surveyed: The nodes, each with the document of its Machine.
    """
    members: dict[Hashable, list[NodeName]] = {}
    documents: dict[Hashable, Any] = {}
    for node, document in surveyed:
        key: Hashable = _key(document) or node
        documents.setdefault(key, document)
        members.setdefault(key, []).append(node)
    classes = []
    malformed = []
    for key, nodes in members.items():
        kind = _read(documents[key], tuple(nodes))
        if isinstance(kind, NodeClass):
            classes.append(kind)
        else:
            malformed.append(kind)
    classes.sort(key=lambda kind: (-len(kind.nodes), kind.nodes[0]))
    return tuple(classes), tuple(malformed)


def _read(document: Any, nodes: tuple[NodeName, ...]) -> NodeClass | UnservedNodes:
    try:
        return NodeClass(Machine.from_dict(document), nodes)
    except UsageError as error:
        return UnservedNodes(nodes, error.code, error.message, "gpuinstall fleet survey --resume")


def _key(document: Any) -> tuple[Hashable, ...] | None:
    """Return all that a choice depends on; None if the document is none of a machine.

    Which card it is, and where on the bus, makes no difference.
    """
    try:
        key = _facts(document)
        hash(key)
    except (AttributeError, TypeError):
        return None
    return key


def _facts(document: Mapping[str, Any]) -> tuple[Hashable, ...]:
    driver = document.get("driver") or {}
    makers = [str(document[maker]) for maker in MAKERS_WITH_FACTS if maker in document]
    return (
        document.get("os"),
        document.get("arch"),
        document.get("libc"),
        document.get("glibc"),
        driver.get("version"),
        driver.get("cuda"),
        str(document.get("environment")),
        _minor_versions(document.get("pythons")),
        tuple(_gpu_facts(gpu) for gpu in document.get("gpus") or ()),
        tuple(_blocking(document.get("problems") or ())),
        *makers,
    )


def _minor_versions(pythons: Iterable[str] | None) -> tuple[str, ...] | None:
    if pythons is None:
        return None
    return tuple(dict.fromkeys(".".join(python.split(".")[:2]) for python in pythons))


def _gpu_facts(gpu: Mapping[str, Any]) -> tuple[Hashable, ...]:
    return tuple(gpu.get(key) for key in _OF_A_GPU)


def _blocking(problems: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Hashable, ...]]:
    for problem in problems:
        if problem.get("blocking"):
            gpus = problem.get("gpus") or ()
            yield problem.get("code"), tuple(gpus)


def classes_in(
    names: Sequence[str],
    drivers: str | None,
    arch: str,
    catalog: Catalog,
) -> tuple[NodeClass, ...]:
    """Return the classes of some GPUs under some driver branches.

    GPUs whose builds ask for no driver come once.

    Args:
        names: Of GPUs or of series (``RTX 30``); none: every GPU that the catalogue knows.
        drivers: A range of branches, ``>=470``, or one, ``570``; None: all.

    Raises:
        UsageError: if a name or the range is malformed.
    """
    branches = _branches(drivers or "", catalog)
    classes = []
    for gpu in _gpus(names, catalog):
        for driver in branches if gpu.compute_capability else [None]:
            machine = Machine(
                "linux",
                arch,
                driver=driver,
                gpus=(gpu,),
            )
            classes.append(NodeClass(machine, ()))
    return tuple(classes)


def _branches(drivers: str, catalog: Catalog) -> list[Driver]:
    if drivers.isdigit():
        drivers = f"=={drivers}"
    try:
        wanted = SpecifierSet(drivers)
    except InvalidSpecifier:
        message = f"{drivers!r} is not a range of driver branches"
        hint = "the same with --driver '>=525,<590'"
        raise UsageError(
            "driver-malformed",
            message,
            hint=hint,
        ) from None
    branches = [version for version in catalog.drivers.versions if str(version) in wanted]
    return [Driver(version, found_via="words") for version in branches]


def spanned(classes: Iterable[NodeClass]) -> str:
    """Return the GPUs and the drivers of classes: ``RTX 30, A800 with driver 525–575``."""
    branches: dict[str, list[str]] = defaultdict(list)
    for kind in classes:
        driver = kind.machine.driver
        branches[kind.machine.gpus[0].label].append(str(driver.version) if driver else "")
    gpus: dict[str, list[str]] = defaultdict(list)
    for name, versions in branches.items():
        ends = dict.fromkeys((versions[0], versions[-1]))
        gpus["–".join(ends)].append(name)
    spans = []
    for drivers, names in gpus.items():
        under = f" with driver {drivers}" if drivers else ""
        spans.append(f"{', '.join(names)}{under}")
    return "; ".join(spans)


def _gpus(names: Sequence[str], catalog: Catalog) -> Iterator[Gpu]:
    """Yield each GPU once by the code that it runs, under the names that were given."""
    if not names:
        yield from _known_gpus(catalog)
        return
    series = {}
    for capability in card_capabilities(catalog.drivers):
        for name in series_of(str(capability)):
            series[name.lower()] = capability
    for name in names:
        if name.lower() in series:
            capability = series[name.lower()]
            yield Gpu(
                0,
                name,
                compute_capability=capability,
                found_via="words",
            )
        else:
            yield gpu_in_words(name)


def _known_gpus(catalog: Catalog) -> Iterator[Gpu]:
    for capability in card_capabilities(catalog.drivers):
        name = "/".join(series_of(str(capability))) or capability.sm
        yield Gpu(
            0,
            name,
            compute_capability=capability,
            found_via="words",
        )
    for chip in other_chips():
        if chip.os in {None, "linux"}:
            yield Gpu(
                0,
                chip.name,
                vendor=chip.maker,
                architecture=chip.architecture,
                found_via="words",
            )
