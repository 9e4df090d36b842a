"""What a machine is, as frozen values, read from the document ``gpuinstall.machine/1`` and written to it.

Each fact says where it was found. What is None is not known, and may be missing in a document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any

from gpuinstall.base.codec import (
    MalformedError,
    one_of,
    read,
    read_object,
    write_object,
)
from gpuinstall.base.errors import UsageError
from gpuinstall.base.finding import Finding
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion

MACHINE_DOCUMENT = "gpuinstall.machine/1"
System = Annotated[str, one_of("linux", "windows", "macos")]
Architecture = Annotated[str, one_of("x86_64", "aarch64", "arm64")]
Libc = Annotated[str, one_of("glibc", "musl")]
Container = Annotated[str, one_of("docker", "podman", "kubernetes", "apptainer", "lxc")]
_PROCESSORS = {
    ("linux", "arm64"): "aarch64",
    ("macos", "aarch64"): "arm64",
    ("windows", "aarch64"): "arm64",
}
MAKERS_WITH_FACTS = ("amd", "apple")
"""Those whose facts of a machine stand under their name; NVIDIA's are ``driver``."""
MOST_GPUS = 1024  # a limit on what a document may make us do; no machine has so many


def _version(pattern: str, example: str) -> Callable[[str], str]:
    """Return a function that returns a version as it is, and raises ValueError for anything else."""

    def parse(text: str) -> str:
        if re.match(pattern, text):
            return text
        raise ValueError(f"is {text!r}, not a version such as {example}")

    return parse


_Glibc = Annotated[str, _version(r"[0-9]+\.[0-9]+", "2.36")]
_Python = Annotated[str, _version(r"[0-9]+\.[0-9]+t?(?![0-9a-z])", "3.12.1")]


def processor_of(os: str, arch: str) -> str:
    """Return a processor as platform tags have it: aarch64 on Linux, arm64 on others.

    Args:
        os: The system, as a document names it.
        arch: The processor, as a document names it.
    """
    return _PROCESSORS.get((os, arch), arch)


class MigDevice(Value):
    """One slice of a card in MIG mode."""

    uuid: str
    profile: str | None = None
    memory_mib: int | None = None
    """In MiB."""


class Gpu(Value):
    """One GPU that this process was given."""

    index: int
    """NVML's, in PCI order."""

    name: str | None = None
    uuid: str | None = None
    pci_id: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    """In MiB; None also if it is unified with the system's."""

    mig: bool = False
    mig_devices: tuple[MigDevice, ...] = ()
    found_via: str | None = None
    vendor: str | None = None
    """Its maker, if that was said: ``vendors.vendor_of`` finds it out."""

    architecture: str | None = None
    """The maker's own name for the code that it runs, such as ``sm_89`` or ``gfx1201``."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as the document has it; the vendor and the architecture if they were said."""
        return write_object(self, optional=("mig_devices", "vendor", "architecture"))

    @property
    def code_name(self) -> str | None:
        """The name of the code that it runs, ``sm_89`` or as its maker calls it; None if it is not known."""
        if self.compute_capability:
            return self.compute_capability.sm
        return self.architecture

    @property
    def label(self) -> str:
        """The name as people say it, without the vendor."""
        if self.name:
            return self.name.removeprefix("NVIDIA ")
        if self.architecture:
            return f"unknown {self.architecture} GPU"
        return "unknown GPU"


class Driver(Value):
    """The user-mode driver."""

    version: DriverVersion | None = None
    cuda: CudaVersion | None = None
    """The newest that it serves."""

    found_via: str | None = None
    libcuda: str | None = None
    """The file of a libcuda that loads before the driver's own."""

    def to_dict(self) -> dict[str, Any]:
        """Return the part of the Machine document."""
        return write_object(self, optional=("libcuda",))


class JetsonRelease(Value):
    """A Jetson."""

    l4t: str = "unknown"
    """The release of its Linux."""


class Environment(Value):
    """Where the operating system runs."""

    wsl: bool = False
    container: Container | None = None
    """Its engine."""

    jetson: JetsonRelease | None = None

    @property
    def l4t(self) -> str | None:
        """The release of a Jetson's Linux."""
        return self.jetson.l4t if self.jetson else None


class Machine(Value):
    """Everything that a choice depends on."""

    os: System
    arch: Architecture
    libc: Libc | None = None
    glibc: _Glibc | None = None
    environment: Environment = Environment()
    pythons: tuple[_Python, ...] | None = None
    """None: any can be had."""

    driver: Driver | None = None
    gpus: tuple[Gpu, ...] = ()
    problems: tuple[Finding, ...] = ()
    distribution: str | None = None
    signs: tuple[str, ...] = ()
    makers: Mapping[str, Mapping[str, Any]] = {}
    """The facts of other makers than NVIDIA, by the maker's name, as they were said."""

    def __hash__(self) -> int:
        # A dict has no hash: the makers' facts are compared alone.
        return hash((self.os, self.arch, self.driver, self.gpus))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Machine:
        """Read a Machine document, with or without the envelope; also a node's record, or doctor's document.

        Raises:
            UsageError: It is malformed.
        """
        for key in ("data", "machine"):
            if isinstance(document, dict) and "schema" not in document:
                document = document.get(key, document)
        try:
            return cls.from_document(document, "the document")
        except MalformedError as fault:
            raise UsageError(
                "machine-malformed",
                f"the machine description is malformed: {fault} (gpuinstall probe --json writes one)",
            ) from None

    @classmethod
    def from_document(cls, document: object, place: str) -> Machine:
        """Read a Machine document that may be part of another; raise MalformedError."""
        body = read(dict, document, place)
        schema = body.get("schema")
        if schema != MACHINE_DOCUMENT:
            raise MalformedError(
                f"schema is {schema!r}; this release reads {MACHINE_DOCUMENT!r}"
            )
        gpus = read(tuple[dict[str, Any], ...], body.get("gpus"), "gpus")
        if len(gpus) > MOST_GPUS:
            raise MalformedError(
                f"gpus has {len(gpus)} entries; at most {MOST_GPUS} are read"
            )
        numbered = []
        for position, gpu in enumerate(gpus):
            if "compute_capability" not in gpu:
                place = f"gpus[{position}].compute_capability"
                raise MalformedError(f"{place} is missing (null when unknown)")
            # A GPU that has no index in the document has its place in the list.
            known = {key: value for key, value in gpu.items() if value is not None}
            numbered.append({"index": position} | known)
        makers = {
            maker: read(dict, body[maker], maker)
            for maker in MAKERS_WITH_FACTS
            if body.get(maker) not in (None, {})
        }
        machine = read_object(cls, {**body, "gpus": numbered, "makers": makers})
        # A choice names GPUs by their indices.
        if len({gpu.index for gpu in machine.gpus}) < len(gpus):
            raise MalformedError("gpus has two entries with the same index")
        return machine

    def to_dict(self) -> dict[str, Any]:
        """Return the Machine document, every key of the contract present."""
        body = write_object(self, optional=("distribution", "signs"))
        makers = body.pop("makers")
        return {"schema": MACHINE_DOCUMENT, **body, **makers}

    def with_problems(self, problems: Iterable[Finding]) -> Machine:
        """Return the same machine with further problems."""
        return replace(self, problems=(*self.problems, *problems))

    @property
    def blocking(self) -> tuple[Finding, ...]:
        """The problems that refuse the machine as a whole."""
        return tuple(one for one in self.problems if one.blocking and not one.gpus)

    @cached_property
    def faulty(self) -> Mapping[int, str]:
        """What leaves GPUs unusable, by their indices."""
        faults: dict[int, str] = {}
        for problem in self.problems:
            if problem.blocking:
                faults |= dict.fromkeys(problem.gpus, problem.message)
        return faults

    @property
    def refusing(self) -> tuple[Finding, ...]:
        """The problems that leave nothing to work with: the machine's own, or those of its GPUs if all have one."""
        indices = {gpu.index for gpu in self.gpus}
        if self.blocking or not indices or not indices <= self.faulty.keys():
            return self.blocking
        return tuple(problem for problem in self.problems if problem.blocking)
