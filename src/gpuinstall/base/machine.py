"""Classes for a machine, its GPUs, and its drivers.

None means unknown. A ``gpuinstall.machine/1`` document can omit such a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any

from gpuinstall.base.codec import (
    MalformedError,
    create_choice_parser,
    read,
    read_object,
    write_object,
)
from gpuinstall.base.errors import UsageError
from gpuinstall.base.finding import Finding
from gpuinstall.base.values import Value, replace
from gpuinstall.base.vendors import VENDOR_ROWS
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion

MACHINE_DOCUMENT = "gpuinstall.machine/1"
PROBE = "gpuinstall probe"
"""The command that writes it, in hints and help."""
System = Annotated[str, create_choice_parser("linux", "windows", "macos")]
Architecture = Annotated[str, create_choice_parser("x86_64", "aarch64", "arm64")]
Libc = Annotated[str, create_choice_parser("glibc", "musl")]
Container = Annotated[
    str, create_choice_parser("docker", "podman", "kubernetes", "apptainer", "lxc")
]
_PROCESSORS = {
    ("linux", "arm64"): "aarch64",
    ("macos", "aarch64"): "arm64",
    ("windows", "aarch64"): "arm64",
}
MAX_GPUS = 1024  # limits the processing of a malformed document


def _version(pattern: str, example: str) -> Callable[[str], str]:
    """Return a codec parser that accepts only versions of one type."""

    def parse(text: str) -> str:
        if re.match(pattern, text):
            return text
        raise ValueError(f"is {text!r}, not a version such as {example}")

    return parse


Glibc = Annotated[str, _version(r"[0-9]+\.[0-9]+", "2.36")]
_Python = Annotated[str, _version(r"[0-9]+\.[0-9]+t?(?![0-9a-z])", "3.12.1")]


def platform_processor(os: str, arch: str) -> str:
    """Return the processor in a platform tag, such as aarch64 or arm64."""
    return _PROCESSORS.get((os, arch), arch)


class MigDevice(Value):
    """MIG partition of a GPU."""

    uuid: str
    profile: str | None = None
    memory_mib: int | None = None


class Gpu(Value):
    """GPU that this process can use."""

    index: int
    """The GPU's index in NVML, in PCI order."""

    name: str | None = None
    uuid: str | None = None
    pci_id: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    """The GPU's memory. None: unknown, or shared with the system."""

    mig: bool = False
    mig_devices: tuple[MigDevice, ...] = ()
    found_via: str | None = None
    vendor: str | None = None
    """The vendor in the JSON document. None: see ``vendors.find_vendor``."""

    architecture: str | None = None
    """The GPU architecture, such as ``sm_89`` or ``gfx1201``."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a Machine document."""
        return write_object(self, optional=("mig_devices", "vendor", "architecture"))

    @property
    def code_name(self) -> str | None:
        """The architecture for which to compile GPU code. None: unknown."""
        if self.compute_capability:
            return self.compute_capability.sm
        return self.architecture

    @property
    def label(self) -> str:
        """The name of the GPU without its vendor."""
        if self.name:
            return self.name.removeprefix("NVIDIA ")
        if self.architecture:
            return f"unknown {self.architecture} GPU"
        return "unknown GPU"


class Driver(Value):
    """NVIDIA's user-mode driver."""

    version: DriverVersion | None = None
    cuda: CudaVersion | None = None
    """The latest CUDA version that the driver supports."""

    found_via: str | None = None
    libcuda: str | None = None
    """The path of the libcuda that is loaded instead of the driver's."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a Machine document."""
        return write_object(self, optional=("libcuda",))


class JetsonRelease(Value):
    """NVIDIA Jetson module, with its release of Jetson Linux (L4T)."""

    l4t: str = "unknown"


class Environment(Value):
    """Environment in which the operating system runs, such as a container."""

    wsl: bool = False
    container: Container | None = None
    """The name of the container engine."""

    jetson: JetsonRelease | None = None

    @property
    def l4t(self) -> str | None:
        """The release of Jetson Linux on a Jetson module."""
        return self.jetson.l4t if self.jetson else None


def make_machine_error(message: str) -> UsageError:
    """Return the error for a Machine document that cannot be read."""
    return UsageError(
        "machine-malformed", f"{message} ({PROBE} --json > machine.json writes one)"
    )


class Machine(Value):
    """All facts that determine the selection of a build."""

    os: System
    arch: Architecture
    libc: Libc | None = None
    glibc: Glibc | None = None
    environment: Environment = Environment()
    pythons: tuple[_Python, ...] | None = None
    """The available Python versions. None: any version can be installed."""

    driver: Driver | None = None
    gpus: tuple[Gpu, ...] = ()
    problems: tuple[Finding, ...] = ()
    distribution: str | None = None
    signs: tuple[str, ...] = ()
    makers: Mapping[str, Mapping[str, Any]] = {}
    """The facts about vendors with ``has_facts``, by vendor."""

    def __hash__(self) -> int:
        # A dict cannot be hashed, so ``makers`` is only compared.
        return hash((self.os, self.arch, self.driver, self.gpus))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Machine:
        """Read a Machine document, which may be nested in another document.

        Raises:
            UsageError: The document is malformed.
        """
        for key in ("data", "machine"):
            if isinstance(document, dict) and "schema" not in document:
                document = document.get(key, document)
        try:
            return cls.from_document(document, "the document")
        except MalformedError as fault:
            raise make_machine_error(
                f"the machine description is malformed: {fault}"
            ) from None

    @classmethod
    def from_document(cls, document: object, place: str) -> Machine:
        """Read a Machine document; raise MalformedError."""
        body = read(dict, document, place)
        schema = body.get("schema")
        if schema != MACHINE_DOCUMENT:
            raise MalformedError(
                f"schema is {schema!r}; this release reads {MACHINE_DOCUMENT!r}"
            )
        gpus = read(tuple[dict[str, Any], ...], body.get("gpus"), "gpus")
        if len(gpus) > MAX_GPUS:
            raise MalformedError(
                f"gpus has {len(gpus)} entries; at most {MAX_GPUS} are allowed"
            )
        numbered = []
        for position, gpu in enumerate(gpus):
            if "compute_capability" not in gpu:
                place = f"gpus[{position}].compute_capability"
                raise MalformedError(f"{place} is missing (null when unknown)")
            # The default index is the position in the list.
            known = {key: value for key, value in gpu.items() if value is not None}
            numbered.append({"index": position} | known)
        makers = {
            row.name: read(dict, body[row.name], row.name)
            for row in VENDOR_ROWS
            if row.has_facts and body.get(row.name) not in (None, {})
        }
        machine = read_object(cls, {**body, "gpus": numbered, "makers": makers})
        # Plans refer to GPUs by index.
        if len({gpu.index for gpu in machine.gpus}) < len(gpus):
            raise MalformedError("gpus has two entries with the same index")
        return machine

    def to_dict(self) -> dict[str, Any]:
        """Return the Machine document, with all keys of its schema."""
        body = write_object(self, optional=("distribution", "signs"))
        makers = body.pop("makers")
        return {"schema": MACHINE_DOCUMENT, **body, **makers}

    def add_problems(self, problems: Iterable[Finding]) -> Machine:
        """Return a copy of the machine with additional problems."""
        return replace(self, problems=(*self.problems, *problems))

    @property
    def blocking(self) -> tuple[Finding, ...]:
        """The blocking problems that affect all GPUs of the machine."""
        return tuple(one for one in self.problems if one.blocking and not one.gpus)

    @cached_property
    def blocked_gpus(self) -> Mapping[int, str]:
        """The messages of blocking problems, by the index of the GPU."""
        faults: dict[int, str] = {}
        for problem in self.problems:
            if problem.blocking:
                faults |= dict.fromkeys(problem.gpus, problem.message)
        return faults

    @property
    def fatal_problems(self) -> tuple[Finding, ...]:
        """The problems that make all GPUs unusable."""
        indices = {gpu.index for gpu in self.gpus}
        if self.blocking or not indices or not indices <= self.blocked_gpus.keys():
            return self.blocking
        return tuple(problem for problem in self.problems if problem.blocking)
