"""What one wheel said of itself, as it is kept and shown; whether it runs on GPUs. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING

import tomli
from packaging.version import Version

from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import Backend
from gpuinstall.catalog import DEFAULT_INDEX, Build
from gpuinstall.catalog.catalog import toolkit_of
from gpuinstall.machine.protocol import Code, Rules
from gpuinstall.wheels.needs import TorchNeeds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.base.machine import Gpu

    RulesOfGpus = Iterable[tuple[Rules, Gpu]]

_ARCHITECTURE = re.compile(r"(sm|compute)_[0-9]{2,3}[af]?|gfx[0-9a-f]{3,5}")
_PIN = re.compile(r"([\w.-]+) ?\(?== ?([0-9]+(?:\.[0-9]+){1,3})\)? ?(?:;.*)?", re.ASCII)

READING = 8
"""The number of the rules by which wheels are read: each that finds another answer in the same wheel adds one."""


class Depth(IntEnum):
    """How much of a wheel is read."""

    METADATA = 0
    """None of it: its name, and METADATA as its server tells it apart."""
    TABLES = 1
    """METADATA, and the tables of one library."""
    PART = 2
    """The tables, and the code of the largest library that has some."""
    WHOLE = 3
    """The code of every library that decides whether it runs."""


@dataclass(frozen=True)
class LearnedRow:
    """A wheel of torch, or of a package with GPU code beside the torch of ``backend``."""

    package: str
    version: str
    backend: str
    platform: str
    """As in ``linux-x86_64``."""
    file: str
    url: str
    size: int
    """Of the whole file."""
    bytes: int
    """How many were read."""
    learned: str
    """When, in UTC."""
    architectures: tuple[str, ...] = ()
    """Empty if the wheel does not say."""
    cuda: str | None = None
    """The CUDA that it was made with. A package that does not tell: what its PTX asks of the driver, or None."""
    witness: str | None = None
    """The part of the wheel that names ``architectures``."""
    is_whole: bool = True
    """Whether ``witness`` was read to its end: only then it has no other architectures."""
    sha256: str | None = None
    """What its page claims: the file was not read as a whole."""
    etag: str | None = None
    """Without a sha256 it tells, with the size, whether the file is still the same."""
    requires: tuple[str, ...] = ()
    """The demands of its METADATA."""
    glibc: str | None = None
    """Of a torch the oldest that its tags allow, of a package what its symbols need."""

    # Of a torch alone.
    pythons: tuple[str, ...] = ()
    """Those that it has wheels for."""
    source: str = ""
    """The address or the folder that lists it; empty: the default index."""
    index: str | None = None
    """The default index that listed it, if it is not the tools' own."""
    labelled: bool = False
    """Whether its version names the backend."""

    # Of a package alone.
    needs: tuple[str, ...] = ()
    """The libraries that its code is linked to and does not bring."""
    opens: tuple[str, ...] = ()
    """The libraries that a string alone names."""
    metadata_version: str | None = None
    """The version in METADATA, if the name of the file says more: 2.8.3 of 2.8.3+cu12torch2.9."""
    torch: TorchNeeds | None = None
    """Which torch its code loads beside."""
    system: str | None = None
    """What its libraries are for: ``windows`` alone, or ``any``; None if it has none."""

    depth: int = Depth.METADATA
    """How much of it was read, a ``Depth``."""
    reading: int = READING
    """The rules by which it was read."""

    @classmethod
    def parse(cls, text: str) -> LearnedRow:
        """Read a row as TOML; raise ValueError if it is none, or was read by other rules."""
        document = tomli.loads(text)
        if document.get("reading") != READING:
            raise ValueError("it was read by other rules")
        row = read_object(cls, document)
        # Both raise ValueError.
        Version(row.version)
        Backend.parse(row.backend)
        if not all(map(_ARCHITECTURE.fullmatch, row.architectures)):
            raise ValueError("an unknown architecture")
        if datetime.fromisoformat(row.learned).tzinfo is None:
            raise ValueError("a time without a zone")
        return row

    def render(self) -> str:
        """Return it as TOML."""
        import tomli_w

        document = write_object(self).items()
        return tomli_w.dumps(
            {key: value for key, value in document if value not in (None, [])}
        )

    @property
    def of_torch(self) -> TorchNeeds:
        """``torch``, unknown if the row does not have it."""
        return self.torch or TorchNeeds("unknown")

    @property
    def day(self) -> str:
        """The day on which it was read."""
        return self.learned[:10]

    @property
    def base(self) -> str | None:
        """The torch index that it was found on, or the default index if it is not the tools' own."""
        return self.index or self.source.removesuffix(f"/{self.backend}") or None

    @property
    def toolkit(self) -> tuple[int, int] | None:
        """``cuda`` as numbers."""
        return toolkit_of(self.cuda)

    def build(self) -> Build:
        """Return a torch as the catalogue describes builds."""
        os, _, arch = self.platform.partition("-")
        return Build(
            torch=Version(self.version),
            backend=Backend.parse(self.backend),
            os=os,
            arch=arch,
            code=self.architectures,
            toolkit=self.toolkit,
            libraries=tuple(_libraries(self.requires)),
            pythons=self.pythons,
            glibc=self.glibc,
            confidence="medium",
            on_default_index=not self.source,
            labelled=self.labelled,
            source=self.source or DEFAULT_INDEX,
            learned=self.day,
        )


def as_build(row: LearnedRow, build: Build) -> Build:
    """Return what the rules are asked about a package: a build with its code and its toolkit.

    Code that does not tell its own CUDA runs with torch's.
    """
    return replace(
        build,
        code=row.architectures,
        toolkit=row.toolkit or build.toolkit,
        libraries=(),
    )


def without_code(
    row: LearnedRow,
    build: Build,
    gpus: RulesOfGpus,
) -> list[tuple[Rules, Gpu]]:
    """Return the GPUs that a package with GPU code has none for."""
    if not row.architectures:
        return []
    made = as_build(row, build)
    return [
        (rules, gpu)
        for rules, gpu in gpus
        if not isinstance(rules.code(made, gpu), Code)
    ]


def misfit(
    row: LearnedRow,
    build: Build,
    gpus: RulesOfGpus,
) -> str | None:
    """Return why a package does not run on the GPUs; one without GPU code or a CUDA of its own runs everywhere."""
    served = tuple(gpus)
    refused = refused_by_driver(row, build, served)
    without = without_code(row, build, served)
    # A part of its code proves nothing, and the rest need not be read if the driver does not run it.
    if not without or (refused and not row.is_whole):
        return refused
    names = " and ".join(dict.fromkeys(gpu.label for _, gpu in without))
    compiled = f"is compiled for {' '.join(row.architectures)}"
    if not row.is_whole:
        part = f"the part of {row.witness} that was read {compiled}"
        return f"may have no code for {names}: {part}, the rest was not read"
    made = as_build(row, build)
    for rules, gpu in without:
        answer = rules.code(made, gpu)
        # The GPU would run PTX of the package that its driver does not compile.
        if not isinstance(answer, Code) and answer.code in rules.driver_reasons:
            return f"does not run on {names}: {row.witness} {compiled}, and {answer.message}"
    return f"has no code for {names}: {row.witness} {compiled}"


def refused_by_driver(
    row: LearnedRow,
    build: Build,
    gpus: RulesOfGpus,
) -> str | None:
    """Return why a driver does not run the CUDA that a package is made with."""
    if not row.architectures and not row.toolkit:
        return None
    made = as_build(row, build)
    for rules, _ in gpus:
        refused = rules.against_driver(made)
        if refused:
            cause = f"{made_with(row, made, rules.software)}, and {refused.message}"
            return f"does not run on {rules.driver}: {cause}"
    return None


def made_with(
    row: LearnedRow,
    made: Build,
    software: str,
) -> str:
    """Return what a package was made with, as a statement."""
    major, minor = made.toolkit or (0, 0)
    toolkit = at_least(software, f"{major}.{minor}")
    # Its METADATA may tell it, and no library.
    return (
        f"{row.witness} is built with {toolkit}"
        if row.witness
        else f"it is for {toolkit}"
    )


def at_least(software: str, version: str) -> str:
    """Return the version of a toolkit in words: the names of libraries tell its major alone, PTX one that has its ISA."""
    if version.endswith(".0"):
        return f"{software} {version.removesuffix('.0')}"
    return f"{software} {version} or newer"


def _libraries(requires: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the cuDNN that a torch pins."""
    for text in requires:
        pin = _PIN.fullmatch(text)
        if pin and "cudnn" in re.split("[-_.]", pin[1]):
            yield "cudnn", pin[2]
