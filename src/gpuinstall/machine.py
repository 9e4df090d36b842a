"""What a machine is, as frozen values; each fact says where it was found. The document is ``gpuinstall.machine/1``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

SCHEMA = "gpuinstall.machine/1"


@dataclass(frozen=True)
class MigDevice:
    """One slice of a card in MIG mode; ``memory_mib`` in MiB."""

    uuid: str
    profile: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU that this process was given; ``index`` is NVML's (PCI order), ``memory_mib`` in MiB, None if unified."""

    index: int
    name: str | None = None
    uuid: str | None = None
    pci_id: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    mig: bool = False
    mig_devices: tuple[MigDevice, ...] = ()
    found_via: str | None = None

    @property
    def label(self) -> str:
        """The name as people say it, without the vendor."""
        return (self.name or "unknown NVIDIA GPU").removeprefix("NVIDIA ")


@dataclass(frozen=True)
class Driver:
    """The user-mode driver: its release, and the newest CUDA that it serves."""

    version: DriverVersion | None = None
    cuda: CudaVersion | None = None
    found_via: str | None = None


@dataclass(frozen=True)
class Environment:
    """Where the operating system runs: WSL, a container engine, a Jetson's ``l4t`` release."""

    wsl: bool = False
    container: str | None = None
    l4t: str | None = None


@dataclass(frozen=True)
class Problem:
    """Something wrong with the machine; ``gpus`` are the indices it concerns, empty for all of it."""

    code: str
    message: str
    fix: str | None = None
    id: str | None = None
    blocking: bool = True
    gpus: tuple[int, ...] = ()
    why: str | None = None
    seen: str | None = None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """Everything that a choice depends on. ``pythons`` None: any can be had."""

    os: str
    arch: str
    libc: str | None = None
    glibc: str | None = None
    environment: Environment = Environment()
    pythons: tuple[str, ...] | None = None
    driver: Driver | None = None
    gpus: tuple[Gpu, ...] = ()
    problems: tuple[Problem, ...] = ()
    distribution: str | None = None
    signs: tuple[str, ...] = field(default=())

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Machine:
        """Read a Machine document, with or without the envelope; raise UsageError where it is malformed."""
        from gpuinstall.machine_document import read

        return read(document)

    def to_dict(self) -> dict[str, Any]:
        """Write the Machine document."""
        from gpuinstall.machine_document import write

        return write(self)

    def with_problems(self, problems: Iterable[Problem]) -> Machine:
        """Return the same machine with further problems."""
        return replace(self, problems=(*self.problems, *problems))

    @property
    def blocking(self) -> tuple[Problem, ...]:
        """The problems that refuse the machine as a whole."""
        return tuple(problem for problem in self.problems if problem.blocking and not problem.gpus)

    @property
    def refusing(self) -> tuple[Problem, ...]:
        """The problems that leave nothing to work with: the machine's own, or those of its GPUs where all have one."""
        faults = tuple(problem for problem in self.problems if problem.blocking and problem.gpus)
        faulty = {index for problem in faults for index in problem.gpus}
        every = bool(self.gpus) and all(gpu.index in faulty for gpu in self.gpus)
        return self.blocking or (faults if every else ())
