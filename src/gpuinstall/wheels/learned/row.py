"""What one wheel said of itself, as it is kept and shown. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from enum import IntEnum

import tomli
from packaging.version import Version

from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import Requirement, parse_requirement
from gpuinstall.base.values import Value
from gpuinstall.base.versions import Backend
from gpuinstall.catalog import DEFAULT_INDEX, Build
from gpuinstall.catalog.catalog import toolkit_of
from gpuinstall.wheels.gpu_code import ordered
from gpuinstall.wheels.needs import TorchNeeds
from gpuinstall.wheels.package import LibraryCode

_ARCHITECTURE = re.compile(r"(sm|compute)_[0-9]{2,3}[af]?|gfx[0-9a-f]{3,5}")
_TORCH = re.compile(r"torch(?![\w.-])")
_PIN = re.compile(r"([\w.-]+) ?\(?== ?([0-9]+(?:\.[0-9]+){1,3})\)? ?(?:;.*)?", re.ASCII)

READING = 23
"""The number of the rules by which wheels are read: each that finds another answer in the same wheel adds one.

tests/unit/test_house.py asks for it after any change to these rules and their tables.
"""


class Depth(IntEnum):
    """How much of a wheel is read."""

    METADATA = 0
    """None of it: its name, and METADATA as its server tells it apart."""
    TABLES = 1
    """METADATA, and the tables of one library."""
    PART = 2
    """The tables, and the beginning of the code of the libraries that decide whether it runs."""
    WHOLE = 3
    """All code of those."""


class LearnedRow(Value):
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
    codes: tuple[LibraryCode, ...] = ()
    """The GPU code, by library; of a torch its own list. Empty if the wheel does not say."""
    cuda: str | None = None
    """The CUDA that it was made with: of a package its major, ``12.0``; None if that is none or unknown."""
    is_whole: bool = True
    """Whether all that decides was read: only then it has no other code."""
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
    linked: str | None = None
    """The largest library that is linked to CUDA's."""
    needs: tuple[str, ...] = ()
    """The libraries that its code is linked to and does not bring."""
    opens: tuple[str, ...] = ()
    """The libraries that a string alone names."""
    cudas: tuple[int, ...] = ()
    """The CUDA majors that its code is built with, if it shows any."""
    has_runtime: bool = False
    """Whether it bundles or links in a CUDA runtime."""
    metadata_version: str | None = None
    """The version in METADATA, if the name of the file says more: 2.8.3 of 2.8.3+cu12torch2.9."""
    torch: TorchNeeds = TorchNeeds("unknown")
    """Which torch its code loads beside."""
    writes_ptx: bool = False
    """Whether it has NVRTC write PTX while it runs, and no machine code."""
    lowest: str | None = None
    """The lowest compute capability that its description asks for, ``7.5``; None if it names none."""
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
    def architectures(self) -> tuple[str, ...]:
        """All that it has code for."""
        names = set[str]()
        for code in self.codes:
            names.update(code.architectures)
        return ordered(names)

    @property
    def links_count(self) -> bool:
        """Whether what its libraries are linked to counts: they have GPU code, name its runtime, or METADATA requires torch."""
        if self.codes or any(name.startswith("libcudart") for name in self.opens):
            return True
        return any(map(_TORCH.match, self.requires))

    @property
    def witness(self) -> str | None:
        """The library that tells its CUDA, or at least its code."""
        if self.linked:
            return self.linked
        return self.codes[0].library if self.codes else None

    def requirements(self) -> Iterator[Requirement]:
        """Return the requirements of METADATA."""
        return requirements_of_metadata(self.requires)

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
            on_default_index=not self.source,
            labelled=self.labelled,
            source=self.source or DEFAULT_INDEX,
            learned=self.day,
        )


def _libraries(requires: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the cuDNN that a torch pins."""
    for text in requires:
        pin = _PIN.fullmatch(text)
        if pin and "cudnn" in re.split("[-_.]", pin[1]):
            yield "cudnn", pin[2]


def requirements_of_metadata(texts: Iterable[str]) -> Iterator[Requirement]:
    """Yield the requirements of METADATA without malformed ones."""
    for text in texts:
        with suppress(UsageError):
            yield parse_requirement(text)
