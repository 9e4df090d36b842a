"""What a machine is, as frozen values, read from the document ``gpuinstall.machine/1`` and written to it.

Each fact says where it was found. What is None is not known, and may be missing in a document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from gpuinstall.errors import UsageError
from gpuinstall.fields import Fields, MalformedError
from gpuinstall.finding import Finding
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

MACHINE_DOCUMENT = "gpuinstall.machine/1"
SYSTEMS = ("linux", "windows", "macos")
ARCHITECTURES = ("x86_64", "aarch64", "arm64")
LIBRARIES = ("glibc", "musl")
CONTAINERS = ("docker", "podman", "kubernetes", "apptainer", "lxc")
MAKERS_WITH_FACTS = ("amd", "intel", "apple")
"""Those whose facts of a machine stand under their name; NVIDIA's are ``driver``."""
MOST_GPUS = 1024  # a limit on what a document may make us do; no machine has so many


class MigDevice(NamedTuple):
    """One slice of a card in MIG mode; ``memory_mib`` in MiB."""

    uuid: str
    profile: str | None = None
    memory_mib: int | None = None

    @classmethod
    def read(cls, fields: Fields) -> MigDevice:
        """Read a slice; raise MalformedError."""
        uuid = fields.text("uuid")
        if uuid is None:
            raise MalformedError(f"{fields.place[:-1]} needs a uuid")
        return cls(uuid, fields.text("profile"), fields.number("memory_mib"))


@dataclass(frozen=True)
class Gpu:
    """One GPU that this process was given; ``index`` is NVML's (PCI order), ``memory_mib`` in MiB, None if unified.

    ``vendor`` is its maker where that was said (``vendors.vendor_of`` finds it out); ``architecture`` the maker's own
    name for the code that it runs, such as ``sm_89`` or ``gfx1201``.
    """

    index: int
    name: str | None = None
    uuid: str | None = None
    pci_id: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    mig: bool = False
    mig_devices: tuple[MigDevice, ...] = ()
    found_via: str | None = None
    vendor: str | None = None
    architecture: str | None = None

    @classmethod
    def read(cls, fields: Fields, position: int) -> Gpu:
        """Read the GPU at a position of the list; raise MalformedError."""
        if "compute_capability" not in fields.body:
            raise fields.malformed("compute_capability", "is missing (null when unknown)")
        index = fields.number("index")
        return cls(
            index=position if index is None else index,
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
        """Write it; the vendor and the architecture where they were said."""
        slices = [
            {"uuid": mig.uuid, "profile": mig.profile, "memory_mib": mig.memory_mib}
            for mig in self.mig_devices
        ]
        further = {"vendor": self.vendor, "architecture": self.architecture}
        return {
            "index": self.index,
            "name": self.name,
            "uuid": self.uuid,
            "pci_id": self.pci_id,
            "compute_capability": _text(self.compute_capability),
            "memory_mib": self.memory_mib,
            "mig": self.mig,
            **({"mig_devices": slices} if slices else {}),
            "found_via": self.found_via,
            **{key: value for key, value in further.items() if value},
        }

    @property
    def code_name(self) -> str | None:
        """The name of the code that it runs, ``sm_89`` or as its maker calls it; None where it is not known."""
        return self.compute_capability.sm if self.compute_capability else self.architecture

    @property
    def label(self) -> str:
        """The name as people say it, without the vendor."""
        unknown = f"unknown {self.architecture} GPU" if self.architecture else "unknown NVIDIA GPU"
        return (self.name or unknown).removeprefix("NVIDIA ")


@dataclass(frozen=True)
class Driver:
    """The user-mode driver: its release, and the newest CUDA that it serves.

    ``compat``: that CUDA is the one of NVIDIA's forward-compatibility package, by which programs are to be started.
    """

    version: DriverVersion | None = None
    cuda: CudaVersion | None = None
    found_via: str | None = None
    compat: bool = False

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
        """Write it."""
        body = {
            "version": _text(self.version),
            "cuda": _text(self.cuda),
            "found_via": self.found_via,
        }
        return {**body, **({"compat": True} if self.compat else {})}


@dataclass(frozen=True)
class Environment:
    """Where the operating system runs: WSL, a container engine, a Jetson's ``l4t`` release."""

    wsl: bool = False
    container: str | None = None
    l4t: str | None = None

    @classmethod
    def read(cls, fields: Fields) -> Environment:
        """Read the surroundings; raise MalformedError."""
        jetson = fields.fields("jetson")
        return cls(
            wsl=bool(fields.flag("wsl")),
            container=fields.text("container", CONTAINERS),
            l4t=None if jetson is None else jetson.text("l4t") or "unknown",
        )

    def to_dict(self) -> dict[str, Any]:
        """Write them."""
        return {
            "wsl": self.wsl,
            "container": self.container,
            "jetson": {"l4t": self.l4t} if self.l4t else None,
        }


@dataclass(frozen=True)
class Machine:
    """Everything that a choice depends on. ``pythons`` None: any can be had.

    ``makers`` are the facts of other makers than NVIDIA, by the maker's name, as they were said.
    """

    os: str
    arch: str
    libc: str | None = None
    glibc: str | None = None
    environment: Environment = Environment()
    pythons: tuple[str, ...] | None = None
    driver: Driver | None = None
    gpus: tuple[Gpu, ...] = ()
    problems: tuple[Finding, ...] = ()
    distribution: str | None = None
    signs: tuple[str, ...] = ()
    makers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Machine:
        """Read a Machine document, with or without the envelope; raise UsageError where it is malformed."""
        enveloped = (
            isinstance(document, dict)
            and "schema" not in document
            and isinstance(document.get("data"), dict)
        )
        try:
            return cls._read(Fields(document["data"] if enveloped else document))
        except MalformedError as fault:
            message = f"the machine description is malformed: {fault} (gpuinstall probe --json writes one)"
            raise UsageError("machine-malformed", message) from None

    @classmethod
    def _read(cls, fields: Fields) -> Machine:
        if (schema := fields.body.get("schema")) != MACHINE_DOCUMENT:
            raise fields.malformed(
                "schema", f"is {schema!r}; this release reads {MACHINE_DOCUMENT!r}"
            )
        environment, driver = fields.fields("environment"), fields.fields("driver")
        return cls(
            os=fields.required("os", SYSTEMS),
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
            makers={
                maker: facts.body for maker in MAKERS_WITH_FACTS if (facts := fields.fields(maker))
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """Write the Machine document, every key of the contract present."""
        return {
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
            **({"distribution": self.distribution} if self.distribution else {}),
            **({"signs": list(self.signs)} if self.signs else {}),
            **{maker: dict(facts) for maker, facts in self.makers.items()},
        }

    def with_problems(self, problems: Iterable[Finding]) -> Machine:
        """Return the same machine with further problems."""
        return replace(self, problems=(*self.problems, *problems))

    @property
    def blocking(self) -> tuple[Finding, ...]:
        """The problems that refuse the machine as a whole."""
        return tuple(problem for problem in self.problems if problem.blocking and not problem.gpus)

    @cached_property
    def faulty(self) -> frozenset[int]:
        """The indices of the GPUs that a problem leaves unusable."""
        return frozenset(
            index for problem in self.problems if problem.blocking for index in problem.gpus
        )

    @property
    def refusing(self) -> tuple[Finding, ...]:
        """The problems that leave nothing to work with: the machine's own, or those of its GPUs where all have one."""
        faults = tuple(problem for problem in self.problems if problem.blocking and problem.gpus)
        every = bool(self.gpus) and self.faulty.issuperset(gpu.index for gpu in self.gpus)
        return self.blocking or (faults if every else ())


def _read_glibc(fields: Fields) -> str | None:
    glibc = fields.text("glibc")
    if glibc is not None and not re.match(r"[0-9]+\.[0-9]+", glibc):
        raise fields.malformed("glibc", f"is {glibc!r}, not a version such as 2.36")
    return glibc


def _read_pythons(fields: Fields) -> tuple[str, ...] | None:
    if fields.body.get("pythons") is None:
        return None
    pythons = fields.items("pythons")
    for position, python in enumerate(pythons):
        if not isinstance(python, str) or not re.match(r"[0-9]+\.[0-9]+t?(?![0-9a-z])", python):
            raise fields.malformed(
                f"pythons[{position}]", f"is {python!r}, not a version such as 3.12.1"
            )
    return tuple(pythons)


def _read_gpus(fields: Fields) -> tuple[Gpu, ...]:
    items = fields.body.get("gpus")
    if not isinstance(items, list):
        raise fields.malformed("gpus", "is missing or not a list")
    if len(items) > MOST_GPUS:
        raise fields.malformed("gpus", f"has {len(items)} entries; at most {MOST_GPUS} are read")
    gpus = tuple(Gpu.read(item, position) for position, item in enumerate(fields.each("gpus")))
    if len({gpu.index for gpu in gpus}) < len(gpus):
        raise fields.malformed("gpus", "has two entries with the same index")
    return gpus


def _text(value: object) -> str | None:
    return None if value is None else str(value)
