"""What a machine is, as frozen values, read from the document ``gpuinstall.machine/1`` and written to it.

Each fact says where it was found. What is None is not known, and may be missing in a document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Any, NamedTuple

from gpuinstall.base.errors import UsageError
from gpuinstall.base.fields import Fields, MalformedError
from gpuinstall.base.finding import Finding
from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion

MACHINE_DOCUMENT = "gpuinstall.machine/1"
_SYSTEMS = ("linux", "windows", "macos")
ARCHITECTURES = ("x86_64", "aarch64", "arm64")
LIBRARIES = ("glibc", "musl")
CONTAINERS = ("docker", "podman", "kubernetes", "apptainer", "lxc")
MAKERS_WITH_FACTS = ("amd", "apple")
"""Those whose facts of a machine stand under their name; NVIDIA's are ``driver``."""
MOST_GPUS = 1024  # a limit on what a document may make us do; no machine has so many


class MigDevice(NamedTuple):
    """One slice of a card in MIG mode."""

    uuid: str
    profile: str | None = None
    memory_mib: int | None = None
    """In MiB."""

    @classmethod
    def read(cls, fields: Fields) -> MigDevice:
        """Read a slice; raise MalformedError."""
        uuid = fields.text("uuid")
        if uuid is None:
            raise MalformedError(f"{fields.place[:-1]} needs a uuid")
        return cls(
            uuid,
            profile=fields.text("profile"),
            memory_mib=fields.number("memory_mib"),
        )


@dataclass(frozen=True)
class Gpu:
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

    @classmethod
    def read(cls, fields: Fields, position: int) -> Gpu:
        """Read the GPU at a position of the list; raise MalformedError."""
        if "compute_capability" not in fields.body:
            raise fields.malformed("compute_capability", "is missing (null when unknown)")
        index = fields.number("index")
        if index is None:
            index = position
        return cls(
            index=index,
            name=fields.text("name"),
            uuid=fields.text("uuid"),
            pci_id=fields.text("pci_id"),
            compute_capability=fields.parsed("compute_capability", ComputeCapability.parse),
            memory_mib=fields.number("memory_mib"),
            mig=bool(fields.flag("mig")),
            mig_devices=tuple(map(MigDevice.read, fields.each("mig_devices"))),
            found_via=fields.text("found_via"),
            vendor=fields.text("vendor"),
            architecture=fields.text("architecture"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as the document has it; the vendor and the architecture if they were said."""
        document: dict[str, Any] = {
            "index": self.index,
            "name": self.name,
            "uuid": self.uuid,
            "pci_id": self.pci_id,
            "compute_capability": _text(self.compute_capability),
            "memory_mib": self.memory_mib,
            "mig": self.mig,
        }
        if self.mig_devices:
            devices = [device._asdict() for device in self.mig_devices]
            document["mig_devices"] = devices
        document["found_via"] = self.found_via
        if self.vendor:
            document["vendor"] = self.vendor
        if self.architecture:
            document["architecture"] = self.architecture
        return document

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
        return "unknown NVIDIA GPU"


@dataclass(frozen=True)
class Driver:
    """The user-mode driver."""

    version: DriverVersion | None = None
    cuda: CudaVersion | None = None
    """The newest that it serves."""

    found_via: str | None = None
    compat: bool = False
    """Whether that CUDA is of NVIDIA's forward-compatibility package, by which programs are to be started."""

    @classmethod
    def read(cls, fields: Fields) -> Driver:
        """Read a driver; raise MalformedError."""
        return cls(
            version=fields.parsed("version", DriverVersion.parse),
            cuda=fields.parsed("cuda", CudaVersion.parse),
            found_via=fields.text("found_via"),
            compat=bool(fields.flag("compat")),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as the document has it."""
        document: dict[str, Any] = {
            "version": _text(self.version),
            "cuda": _text(self.cuda),
            "found_via": self.found_via,
        }
        if self.compat:
            document["compat"] = True
        return document


@dataclass(frozen=True)
class Environment:
    """Where the operating system runs."""

    wsl: bool = False
    container: str | None = None
    """Its engine."""

    l4t: str | None = None
    """The release of a Jetson's Linux."""

    @classmethod
    def read(cls, fields: Fields) -> Environment:
        """Read the surroundings; raise MalformedError."""
        l4t = None
        jetson = fields.fields("jetson")
        if jetson is not None:
            l4t = jetson.text("l4t") or "unknown"
        return cls(
            wsl=bool(fields.flag("wsl")),
            container=fields.text("container", CONTAINERS),
            l4t=l4t,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return them as the document has them."""
        return {
            "wsl": self.wsl,
            "container": self.container,
            "jetson": {"l4t": self.l4t} if self.l4t else None,
        }


@dataclass(frozen=True)
class Machine:
    """Everything that a choice depends on."""

    os: str
    arch: str
    libc: str | None = None
    glibc: str | None = None
    environment: Environment = Environment()
    pythons: tuple[str, ...] | None = None
    """None: any can be had."""

    driver: Driver | None = None
    gpus: tuple[Gpu, ...] = ()
    problems: tuple[Finding, ...] = ()
    distribution: str | None = None
    signs: tuple[str, ...] = ()
    makers: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict,
        hash=False,
    )
    """The facts of other makers than NVIDIA, by the maker's name, as they were said."""

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Machine:
        """Read a Machine document, with or without the envelope.

        Raises:
            UsageError: It is malformed.
        """
        if isinstance(document, dict) and "schema" not in document:
            data = document.get("data")
            if isinstance(data, dict):
                document = data
        try:
            return cls._read(Fields(document))
        except MalformedError as fault:
            raise UsageError(
                "machine-malformed",
                f"the machine description is malformed: {fault} (gpuinstall probe --json writes one)",
            ) from None

    @classmethod
    def _read(cls, fields: Fields) -> Machine:
        schema = fields.body.get("schema")
        if schema != MACHINE_DOCUMENT:
            fault = f"is {schema!r}; this release reads {MACHINE_DOCUMENT!r}"
            raise fields.malformed("schema", fault)
        environment = fields.fields("environment")
        driver = fields.fields("driver")
        makers = {}
        for maker in MAKERS_WITH_FACTS:
            facts = fields.fields(maker)
            if facts:
                makers[maker] = facts.body
        return cls(
            os=fields.required("os", _SYSTEMS),
            arch=fields.required("arch", ARCHITECTURES),
            libc=fields.text("libc", LIBRARIES),
            glibc=_read_glibc(fields),
            environment=Environment.read(environment) if environment else Environment(),
            pythons=_read_pythons(fields),
            driver=Driver.read(driver) if driver else None,
            gpus=_read_gpus(fields),
            problems=tuple(map(Finding.read, fields.each("problems"))),
            distribution=fields.text("distribution"),
            signs=fields.texts("signs"),
            makers=makers,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the Machine document, every key of the contract present."""
        document = {
            "schema": MACHINE_DOCUMENT,
            "os": self.os,
            "arch": self.arch,
            "libc": self.libc,
            "glibc": self.glibc,
            "environment": self.environment.to_dict(),
            "pythons": None if self.pythons is None else list(self.pythons),
            "driver": self.driver and self.driver.to_dict(),
            "gpus": [gpu.to_dict() for gpu in self.gpus],
            "problems": [problem.to_dict() for problem in self.problems],
        }
        if self.distribution:
            document["distribution"] = self.distribution
        if self.signs:
            document["signs"] = list(self.signs)
        for maker, facts in self.makers.items():
            document[maker] = dict(facts)
        return document

    def with_problems(self, problems: Iterable[Finding]) -> Machine:
        """Return the same machine with further problems."""
        return replace(self, problems=(*self.problems, *problems))

    @property
    def blocking(self) -> tuple[Finding, ...]:
        """The problems that refuse the machine as a whole."""
        problems = [problem for problem in self.problems if problem.blocking]
        return tuple(problem for problem in problems if not problem.gpus)

    @cached_property
    def faulty(self) -> frozenset[int]:
        """The indices of the GPUs that a problem leaves unusable."""
        indices: set[int] = set()
        for problem in self.problems:
            if problem.blocking:
                indices.update(problem.gpus)
        return frozenset(indices)

    @property
    def refusing(self) -> tuple[Finding, ...]:
        """The problems that leave nothing to work with: the machine's own, or those of its GPUs if all have one."""
        indices = {gpu.index for gpu in self.gpus}
        if self.blocking or not indices or not indices <= self.faulty:
            return self.blocking
        return tuple(problem for problem in self.problems if problem.blocking)


def _read_glibc(fields: Fields) -> str | None:
    glibc = fields.text("glibc")
    if glibc is not None and not re.match(r"[0-9]+\.[0-9]+", glibc):
        raise fields.malformed("glibc", f"is {glibc!r}, not a version such as 2.36")
    return glibc


def _read_pythons(fields: Fields) -> tuple[str, ...] | None:
    if fields.body.get("pythons") is None:
        return None
    pythons = fields.items("pythons")
    form = re.compile(r"[0-9]+\.[0-9]+t?(?![0-9a-z])")
    for position, python in enumerate(pythons):
        if not isinstance(python, str) or not form.match(python):
            fault = f"is {python!r}, not a version such as 3.12.1"
            raise fields.malformed(f"pythons[{position}]", fault)
    return tuple(pythons)


def _read_gpus(fields: Fields) -> tuple[Gpu, ...]:
    items = fields.body.get("gpus")
    if not isinstance(items, list):
        raise fields.malformed("gpus", "is missing or not a list")
    if len(items) > MOST_GPUS:
        raise fields.malformed("gpus", f"has {len(items)} entries; at most {MOST_GPUS} are read")
    gpus: dict[int, Gpu] = {}
    for position, item in enumerate(fields.each("gpus")):
        gpu = Gpu.read(item, position)
        gpus[gpu.index] = gpu
    if len(gpus) < len(items):
        raise fields.malformed("gpus", "has two entries with the same index")
    return tuple(gpus.values())


def _text(value: object) -> str | None:
    return None if value is None else str(value)
