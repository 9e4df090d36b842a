"""Row of one wheel: its facts, as they are cached. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import IntEnum

from packaging.version import Version

from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import parse_json
from gpuinstall.base.requirement import Requirement, names_of, parse_requirement
from gpuinstall.base.versions import Backend
from gpuinstall.catalog import DEFAULT_INDEX, Build
from gpuinstall.catalog.catalog import toolkit_of
from gpuinstall.wheels.gpu_code import ordered
from gpuinstall.wheels.package import WheelFacts

READING = 26
"""The version of the rules that read wheels.

tests/unit/test_house.py checks it after every change to these rules and tables.
"""


class Depth(IntEnum):
    """Depth to which a wheel is read."""

    METADATA = 0
    """Its name, and METADATA as the index serves it."""
    TABLES = 1
    """METADATA, and the tables of the largest libraries."""
    PART = 2
    """All tables, and the beginning of the deciding GPU code."""
    WHOLE = 3
    """All of this code, within its limit."""


class LearnedRow(WheelFacts, kw_only=True):
    """A wheel of torch, or of another package for a torch."""

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
    cuda: str | None = None
    """The CUDA that it was built with, ``12.0`` for a package, if known."""
    sha256: str | None = None
    """As listed on its page: the whole file was not read."""
    requires: tuple[str, ...] = ()
    """The requirements of its METADATA."""

    # Only of torch.
    pythons: tuple[str, ...] = ()
    """The Pythons with a wheel."""
    source: str = ""
    """The URL or folder that lists it; empty: the default index."""
    index: str | None = None
    """The default index that lists it, if it is not the usual one."""
    is_labeled: bool = False
    """Whether its version names the backend."""

    # Only of other packages.
    metadata_version: str | None = None
    """The version in METADATA, if the name of the file says more: 2.8.3 of 2.8.3+cu12torch2.9."""
    lowest: str | None = None
    """The lowest compute capability in its description, ``7.5``, if any."""
    system: str | None = None
    """The system of its libraries, if any: ``windows`` or ``any``."""

    depth: int = Depth.METADATA
    """The ``Depth`` to which it was read."""
    reading: int = READING
    """The version of the rules that read it."""

    @classmethod
    def parse(cls, text: str) -> LearnedRow:
        """Parse JSON; raise ValueError if it is invalid or of other rules."""
        row = read_object(cls, parse_json(text))
        if row.reading != READING:
            raise ValueError("it was read by other rules")
        return row

    def render(self) -> str:
        """Return it as JSON."""
        return json.dumps(write_object(self))

    @property
    def architectures(self) -> tuple[str, ...]:
        """All architectures of its code."""
        names = set[str]()
        for code in self.codes:
            names.update(code.architectures)
        return ordered(names)

    @property
    def links_count(self) -> bool:
        """Whether it has GPU code, opens CUDA, or requires torch."""
        if self.codes or any(name.startswith("libcudart") for name in self.opens):
            return True
        return "torch" in names_of(self.requirements())

    @property
    def witness(self) -> str | None:
        """The library that shows its CUDA, or at least its code."""
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
        """The torch index, or the unusual default index, that lists it."""
        return self.index or self.source.removesuffix(f"/{self.backend}") or None

    @property
    def toolkit(self) -> tuple[int, int] | None:
        """``cuda`` as numbers."""
        return toolkit_of(self.cuda)

    def build(self) -> Build:
        """Return a torch as a build of the catalog."""
        os, _, arch = self.platform.partition("-")
        return Build(
            torch=Version(self.version),
            backend=Backend.parse(self.backend),
            os=os,
            arch=arch,
            code=self.architectures,
            toolkit=self.toolkit,
            libraries=tuple(_libraries(self.requirements())),
            pythons=self.pythons,
            glibc=self.glibc,
            on_default_index=not self.source,
            is_labeled=self.is_labeled,
            source=self.source or DEFAULT_INDEX,
            learned=self.day,
        )


def _libraries(requirements: Iterable[Requirement]) -> Iterator[tuple[str, str]]:
    """Yield the cuDNN that a torch pins."""
    for one in requirements:
        if one.pinned and "cudnn" in one.name.split("-"):
            yield "cudnn", one.pinned


def requirements_of_metadata(texts: Iterable[str]) -> Iterator[Requirement]:
    """Yield the requirements of METADATA without malformed ones."""
    for text in texts:
        with suppress(UsageError):
            yield parse_requirement(text)
