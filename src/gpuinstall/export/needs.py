"""Which machines a lock runs on: one value, and the words of schedulers and brokers that are made of it.

It is found by asking: a machine with one GPU of each known kind is judged under each driver that the catalogue's tables
tell apart, by the rules that choose a lock. What a tool has no words for stands above them as a comment, with the
command that finds it out when a program starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

from gpuinstall.base.codec import read_object
from gpuinstall.base.errors import UsageError
from gpuinstall.base.finding import Rejection
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import visible
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU, CudaVersion, DriverVersion
from gpuinstall.catalog import Catalog
from gpuinstall.catalog.gpus import other_chips, products
from gpuinstall.export.pins import backend_of, not_exportable, read_texts, systems_of
from gpuinstall.lock.file.fit import Fit, fit
from gpuinstall.lock.file.lock import Lock
from gpuinstall.lock.file.target import glibc_needed
from gpuinstall.machine.vendors import VENDORS

_NO_GLIBC = "2.0"
"""Older than any that a wheel names."""
_SYSTEMS = {"linux": "Linux", "windows": "Windows", "macos": "macOS"}
_MAKERS = {"nvidia": "compute capability", "amd": "AMD", "intel": "Intel"}


class GpuNeeds(Value):
    """Some kinds of GPU, and the drivers under which they run a lock.

    No newest driver is given: one that has given up a GPU does not list it, so that no job is placed there.
    """

    codes: tuple[str, ...]
    """What the GPUs execute: compute capabilities, ``8.6``, or the maker's own names, ``gfx1100``."""

    driver: DriverVersion | None = None
    """The oldest driver; None: any."""

    cuda: CudaVersion | None = None
    """The CUDA that this driver reports."""


class MachineNeeds(Value):
    """The machines of one system on which a lock runs."""

    lock: str
    """The name of its file."""

    torch: str
    """Its build of torch."""

    python: str
    os: str
    arch: str

    glibc: str | None
    """The oldest glibc that it runs on; None: not Linux, or any."""

    maker: str | None
    """The maker of the GPUs as documents name it; None: no GPU is needed."""

    gpus: tuple[GpuNeeds, ...]
    """The GPUs, those of older drivers first."""

    @property
    def codes(self) -> tuple[str, ...]:
        """Every kind of GPU that runs the lock under some driver."""
        return tuple(code for gpus in self.gpus for code in gpus.codes)

    @property
    def text(self) -> str:
        """The same as people read it, a line for each fact."""
        lines = [f"{self.lock}: torch {self.torch}, Python {self.python}"]
        glibc = f", glibc {self.glibc} or newer" if self.glibc else ""
        lines.append(f"  system    {_SYSTEMS[self.os]} {self.arch}{glibc}")
        lines += [f"  GPU       {text}" for text in self.gpu_texts]
        return "".join(f"{line}\n" for line in lines)

    @property
    def gpu_texts(self) -> list[str]:
        """The GPUs with their minimum driver, as text."""
        if self.maker is None:
            return ["none"]
        texts = []
        for gpus in self.gpus:
            text = f"{_MAKERS[self.maker]} {', '.join(gpus.codes)}"
            if gpus.driver:
                text += f": driver {gpus.driver} or newer (CUDA {gpus.cuda})"
            texts.append(text)
        return texts


def machine_needs(lock: Lock, catalog: Catalog) -> list[MachineNeeds]:
    """Return what a lock needs of a machine, for each system that it is for.

    Raises:
        UsageError: if it does not say what it is for, or runs on no known machine.
    """
    kind = backend_of(lock).kind
    maker = None
    if kind != CPU.kind:
        maker = next(name for name, vendor in VENDORS.items() if vendor.kind == kind)
    needs = []
    for os, arch in systems_of(lock):
        files = [(file.package, file.name) for file in lock.files]
        glibc: str | None = glibc_needed(files, _NO_GLIBC)
        if os != "linux" or glibc == _NO_GLIBC:
            glibc = None
        machine = Machine(
            os,
            arch,
            libc=glibc and "glibc",
            glibc=glibc,
            gpus=tuple(_known_gpus(maker, arch)),
        )
        needs.append(
            MachineNeeds(
                lock=visible(lock.name),
                torch=lock.versions.get("torch", ""),
                python=str(lock.python),
                os=os,
                arch=arch,
                glibc=glibc,
                maker=maker,
                gpus=tuple(_gpu_needs(lock, machine, catalog)),
            )
        )
    return needs


def _known_gpus(
    maker: str | None,
    arch: str,
) -> Iterator[Gpu]:
    """Yield a GPU of each kind of a maker's that a machine can have."""
    if maker == "nvidia":
        # What only ARM boards have is no GPU of a PC.
        capabilities = {
            product.capability
            for product in products()
            if product.capability and not (product.arm and arch == "x86_64")
        }
        for index, capability in enumerate(sorted(capabilities)):
            yield Gpu(index, compute_capability=capability)
        return
    for index, chip in enumerate(other_chips()):
        if chip.maker == maker:
            yield Gpu(index, vendor=maker, architecture=chip.architecture)


def _gpu_needs(
    lock: Lock,
    machine: Machine,
    catalog: Catalog,
) -> Iterator[GpuNeeds]:
    """Yield the GPUs of a machine that run a lock, those with the same oldest driver together.

    Args:
        lock: The lock.
        machine: One with a GPU of every kind, and no driver.
        catalog: The builds and drivers that are known.
    """
    drivers: list[DriverVersion | None] = [None]
    if any(gpu.compute_capability for gpu in machine.gpus):
        drivers = list(_drivers(machine.os, catalog))
    oldest: dict[str, DriverVersion | None] = {}
    for driver in drivers:
        with_driver = replace(machine, driver=driver and Driver(driver))
        verdict = fit(lock, with_driver, Request(()), catalog)
        running = verdict.gpus if isinstance(verdict, Fit) else ()
        for gpu in machine.gpus:
            if gpu.index in running:
                code = str(gpu.compute_capability or gpu.architecture)
                oldest.setdefault(code, driver)
    if not oldest and isinstance(verdict, Rejection):
        message = f"{lock.name} runs on no known machine: {verdict.reason.message}"
        raise not_exportable(message)
    for driver in dict.fromkeys(oldest.values()):
        codes = tuple(code for code, first in oldest.items() if first == driver)
        if driver is None:
            yield GpuNeeds(codes)
            continue
        row = catalog.drivers.branch(driver)
        # 580.0 was never released: it stands for the branch.
        if driver.parts == (driver.branch, 0):
            driver = DriverVersion.parse(str(driver.branch))  # noqa: PLW2901
        yield GpuNeeds(codes, driver, cuda=row and row[1])


def _drivers(os: str, catalog: Catalog) -> list[DriverVersion]:
    """Return the drivers that the catalogue's tables tell apart: every other is judged as the one before it."""
    tables = catalog.drivers
    releases = {DriverVersion.parse(f"{branch}.0") for branch, _ in tables.branches}
    for floor in (*tables.floors.values(), *tables.first_drivers.values()):
        release = floor.windows if os == "windows" else floor.linux
        # A branch alone stands for its newest release, and is asked about by its first one already.
        if len(release.parts) > 1:
            releases.add(release)
    return sorted(releases)


MACHINE_TOOLS = ("slurm", "kubernetes", "skypilot", "dstack")


class MachineTool(Value):
    """What a tool can be told of machines: a table of ``data/machine_tools.toml``."""

    text: str
    node: str = ""
    """Its words for one kind of node, which follow the text."""
    can_say: tuple[str, ...] = ()
    """``processor`` and ``driver``, if it has words for them."""
    maker: str = ""
    """Whose GPUs alone it has words for; empty: every maker's."""
    gpus: Mapping[str, str] = {}
    """What its GPUs execute, by its own names for them; empty: it is told what they execute."""


def load_tool(name: str) -> MachineTool:
    """Return what a tool can be told."""
    return read_object(MachineTool, read_texts("machine_tools")[name], name)


def words_for(
    name: str,
    needs: Sequence[MachineNeeds],
) -> str:
    """Return what to tell a tool so that it takes a machine on which one of some locks runs.

    Raises:
        UsageError: if they are for different machines, or no GPU that the tool has words for runs one.
    """
    tool = load_tool(name)
    for_gpus = [one for one in needs if one.maker and one.os == "linux"]
    if len({(one.maker, one.arch) for one in for_gpus}) > 1:
        raise UsageError(
            "several-machines",
            f"the locks are for different machines: {_names(for_gpus, 'and')}",
            hint=f"Run it again with --lock {quoted(for_gpus[0].lock)}",
        )
    codes = list(dict.fromkeys(code for one in for_gpus for code in one.codes))
    names = [gpu for gpu, code in tool.gpus.items() if code in codes]
    gpus = names if tool.gpus else codes
    if not gpus or tool.maker not in {"", for_gpus[0].maker}:
        raise not_exportable(
            f"no GPU that {name} has words for runs {_names(needs, 'or')}",
            "gpuinstall export needs",
        )
    one = for_gpus[0]
    values = {
        "maker": one.maker,
        "names": ", ".join(names),
        "counts": ", ".join(f"{gpu}: 1" for gpu in names),
        "codes": ", ".join(codes),
        "arch": "x86" if one.arch == "x86_64" else "arm",
        "node_arch": "amd64" if one.arch == "x86_64" else "arm64",
    }
    unsaid = dict.fromkeys(fact for one in for_gpus for fact in _unsaid(tool, one))
    text = f"# A machine for {_names(for_gpus, 'or')}.\n"
    text += f"# {name} has no words for: {'; '.join(unsaid)}.\n"
    text += "# This checks it when the job starts: gpuinstall run --any COMMAND\n"
    text += tool.text.format(**values)
    for node in chain.from_iterable(map(_nodes, for_gpus)):
        text += tool.node.format(**values, **node)
    return text


def _names(needs: Sequence[MachineNeeds], word: str) -> str:
    return visible(f" {word} ".join(one.lock for one in needs))


def _unsaid(
    tool: MachineTool,
    needs: MachineNeeds,
) -> Iterator[str]:
    if "processor" not in tool.can_say:
        yield f"the processor, {needs.arch}"
    if needs.glibc:
        yield f"glibc {needs.glibc} or newer"
    for gpus in needs.gpus:
        if gpus.driver is None:
            continue
        # Of a driver, the branch alone is a number that can be compared.
        if "driver" not in tool.can_say or len(gpus.driver.parts) > 1:
            yield f"driver {gpus.driver} or newer, for {', '.join(gpus.codes)}"


def _nodes(needs: MachineNeeds) -> Iterator[dict[str, Any]]:
    """Yield what a node may be, by the major of its GPUs and their drivers: all labels of one have to hold."""
    for gpus in needs.gpus:
        for major, codes in groupby(
            gpus.codes, key=lambda code: code.partition(".")[0]
        ):
            yield {
                "major": major,
                "minors": json.dumps([code.partition(".")[2] for code in codes]),
                "below": gpus.driver.branch - 1 if gpus.driver else 0,
            }
