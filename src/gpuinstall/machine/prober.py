"""What a maker of GPUs brings to the probe, and the values that it gives back."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

from gpuinstall.base.machine import Environment, JetsonRelease, Machine
from gpuinstall.base.values import Value, replace
from gpuinstall.machine.container import ContainerInfo, Wsl, job_devices
from gpuinstall.machine.host import Host
from gpuinstall.machine.vendors import FIRST_VENDOR, vendor_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.base.finding import Finding
    from gpuinstall.base.machine import Driver, Gpu, MigDevice
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.catalog.failures.problems import FixContext
    from gpuinstall.machine.bus import PciDevice
    from gpuinstall.machine.source import Source

ProofOutcome = Literal["proven", "unproven", "failed"]
OUTCOMES: tuple[ProofOutcome, ...] = get_args(ProofOutcome)
"""From the best to the worst."""

_SUMMARIES: dict[ProofOutcome, str] = {
    "proven": "a kernel ran on {}",
    "unproven": "not proven: {}",
    "failed": "failed: {}",
}

_VISIBLE_ENTRY = re.compile(r"[0-9]{1,9}|(GPU|MIG)-.+")


class MachineFacts(Value):
    """What is known of the machine, whoever made its GPUs."""

    host: Host
    container: ContainerInfo
    wsl: Wsl | None
    devices: tuple[PciDevice, ...]
    """The devices of the PCI bus."""

    pythons: tuple[str, ...]

    def cards(self, vendor: int) -> list[PciDevice]:
        """Return the display controllers and accelerators of a maker, without those of virtual machines."""
        ours = [device for device in self.devices if device.vendor == vendor]
        return [device for device in ours if not device.is_reserved]

    def place(self, *, jetson: bool = False) -> FixContext:
        """Return where a fix would be applied."""
        from gpuinstall.catalog.failures.problems import FixContext

        environment = Environment(
            wsl=self.wsl is not None,
            container=self.container.engine,
            jetson=JetsonRelease() if jetson else None,
        )
        return FixContext.of_machine(
            Machine(
                self.host.os,
                self.host.arch,
                distribution=self.host.distribution,
                environment=environment,
            )
        )


class VendorFindings(Value):
    """What one maker's prober concludes."""

    gpus: tuple[Gpu, ...]
    """Counted from 0."""
    problems: tuple[Finding, ...]
    """What is wrong with the GPUs or their driver, or should be known."""
    shows_gpu: bool
    """Whether any source shows a GPU that this process was given, listed or not."""
    driver: Driver | None = None
    jetson: JetsonRelease | None = None
    devices: tuple[PciDevice, ...] = ()
    """Windows' adapters, if they had to be asked for."""
    facts: Mapping[str, Any] = {}
    """What the Machine document has below the maker's name."""

    def counted_from(self, first: int) -> VendorFindings:
        """Return the same with its GPUs counted on from those of other makers."""
        gpus = [replace(gpu, index=gpu.index + first) for gpu in self.gpus]
        problems = []
        for problem in self.problems:
            moved = tuple(gpu + first for gpu in problem.gpus)
            problems.append(replace(problem, gpus=moved))
        return replace(self, gpus=tuple(gpus), problems=tuple(problems))


class Preflight(Value):
    """What the GPUs showed before anything was downloaded, what is wrong with them, and the seconds it took."""

    outcomes: Mapping[int, ProofOutcome] = {}
    """By the index of the GPU; one that is busy is ``unproven``."""
    problems: tuple[Finding, ...] = ()
    seconds: float = 0.0

    def with_outcome(self, outcome: ProofOutcome) -> tuple[int, ...]:
        """Return the indices of the GPUs that ended so."""
        return tuple(index for index, end in self.outcomes.items() if end == outcome)

    @property
    def summary(self) -> str:
        """What came of it, in one line."""
        count = len(self.outcomes)
        if len(self.with_outcome("proven")) == count > 1:
            return f"a kernel ran on {'both' if count == 2 else f'all {count}'} GPUs"
        parts = []
        for outcome, text in _SUMMARIES.items():
            gpus = self.with_outcome(outcome)
            if gpus:
                parts.append(text.format(format_gpus(gpus)))
        return " · ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``doctor --json`` shows of it."""
        gpus = [{"index": index, "status": end} for index, end in self.outcomes.items()]
        return {
            "gpus": gpus,
            "problems": [problem.to_dict() for problem in self.problems],
            "seconds": round(self.seconds, 3),
        }


class GpuPart(NamedTuple):
    """What kernels are tried on: a GPU, or one MIG slice of it."""

    gpu: Gpu
    slice: MigDevice | None
    name: str
    """What shows it to a program: its UUID, else its place among the GPUs of its maker."""
    withheld: str | None
    """Why it cannot be tried: the probe found a fault, or this process was not given it."""


class Prober(ABC):
    """One maker's half of the probe."""

    vendor: ClassVar[str]
    job_variables: ClassVar[tuple[str, ...]] = ()
    """The variables in which a scheduler lists the GPUs of a job; a GPU has to be in each that is set."""

    @abstractmethod
    def findings(self, source: Source, facts: MachineFacts) -> VendorFindings:
        """Return this maker's GPUs that this process was given, and what is wrong with them.

        Args:
            source: Has what only this maker's machines have.
            facts: Those of the whole machine.
        """

    def preflight(
        self,
        machine: Machine,
        reporter: Reporter,
    ) -> Preflight:
        """Prove the driver on every usable GPU of this maker, before anything is downloaded.

        Without a kernel to run they stay unproven: kernels come with the build.
        """
        indices = [part.gpu.index for part in self.usable_parts(machine)]
        return Preflight(dict.fromkeys(indices, "unproven"))

    def usable_parts(self, machine: Machine) -> list[GpuPart]:
        """Return what can be tried now; nothing if the machine as a whole has a fault."""
        if machine.blocking:
            return []
        parts = self.parts(machine, os.environ)
        return [part for part in parts if part.withheld is None]

    def parts(
        self,
        machine: Machine,
        environ: Mapping[str, str],
    ) -> Iterator[GpuPart]:
        """Yield the GPUs of this maker, or the slices of each, and whether this process can use them. Pure.

        Args:
            machine: The machine.
            environ: The variables by which a scheduler's job has some of them alone.
        """
        # One of no known maker counts as the first's: a Jetson's GPU has no PCI id.
        ours = [
            gpu
            for gpu in sorted(machine.gpus, key=lambda gpu: gpu.index)
            if (vendor_of(gpu, machine) or FIRST_VENDOR) == self.vendor
        ]
        given = job_devices(environ, self.job_variables)
        # CUDA counts the cards that it was given from 0, whatever NVML calls them.
        for ordinal, gpu in enumerate(ours):
            for part in gpu.mig_devices or (None,):
                name = part.uuid if part else gpu.uuid or str(ordinal)
                withheld = machine.faulty.get(gpu.index)
                for variable, devices in given.items():
                    if not (withheld or is_visible(devices, ordinal, gpu, name)):
                        withheld = f"not assigned to this job: {variable}={devices}"
                yield GpuPart(gpu, part, name, withheld)


def is_visible(
    devices: str,
    ordinal: int,
    gpu: Gpu,
    name: str,
) -> bool:
    """Whether a list such as CUDA_VISIBLE_DEVICES has a card, or the slice ``name`` of it.

    Args:
        devices: The list.
        ordinal: The place of the card among those that the process was given.
        gpu: The card.
        name: The UUID of the card or of the slice.
    """
    entries = visible_entries(devices)
    # An ordinal is no beginning of another one.
    uuids = tuple(entry for entry in entries if not entry.isdecimal())
    return (
        str(ordinal) in entries
        or name.startswith(uuids)
        or (gpu.uuid or name).startswith(uuids)
    )


def visible_entries(devices: str) -> tuple[str, ...]:
    """Return the entries of such a list that count: ordinals, and the beginnings of UUIDs.

    The first entry that can name no device (``-1``, ``NoDevFiles``, an empty one) ends the list: torch/cuda/__init__.py
    retells it in ``_parse_visible_devices``. A part of an Intel card, ``0.1``, stands for the card.
    """
    names = map(str.strip, devices.split(","))
    entries = [name.partition(".")[0] for name in names]
    return tuple(takewhile(_VISIBLE_ENTRY.fullmatch, entries))


def format_gpus(gpus: tuple[int, ...]) -> str:
    """Return GPUs as they stand within a sentence."""
    if not gpus:
        return "the GPU"
    *first, last = map(str, gpus)
    return f"GPUs {', '.join(first)} and {last}" if first else f"GPU {last}"
