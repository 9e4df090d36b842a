"""Cached facts about one wheel, without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import IntEnum

from packaging.version import Version

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import (
    Requirement,
    parse_requirement,
    requirement_names,
)
from gpuinstall.base.versions import Backend
from gpuinstall.catalog import DEFAULT_INDEX, Build
from gpuinstall.catalog.catalog import parse_toolkit
from gpuinstall.wheels.gpu_code import sort_architectures
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import parse_label_cuda, parse_name_cuda
from gpuinstall.wheels.package import WheelFacts

READING = 49
"""The version of the rules that read wheels.

tests/unit/test_house.py checks it after every change to these rules and tables.
"""


class Depth(IntEnum):
    """How much of a wheel is read, from METADATA to all GPU code."""

    METADATA = 0
    """The file name, and METADATA if the index serves it."""
    TABLES = 1
    """METADATA, and the tables of the largest libraries."""
    PART = 2
    """The tables of all libraries, and a part of the GPU code."""
    WHOLE = 3
    """All GPU code that determines compatibility, up to a limit."""


class WheelRow(WheelFacts, kw_only=True):
    """Facts about a wheel of torch, or about a wheel for a build of torch."""

    package: str
    version: str
    backend: str
    platform: str
    """The platform, such as ``linux-x86_64``."""
    file: str = ""
    url: str = ""
    size: int = 0
    """The size of the whole file in bytes."""
    bytes: int = 0
    """The number of bytes that were read from the wheel."""
    learned: str = ""
    """The UTC time at which the wheel was read."""
    cuda: str | None = None
    """The CUDA version of torch, if known. ``12.0`` is any CUDA 12."""
    sha256: str | None = None
    """The hash on the index page, which a partial read cannot verify."""
    requires: tuple[str, ...] = ()
    """The requirements in METADATA."""

    # These fields are only for torch.
    pythons: tuple[str, ...] = ()
    """The Python versions that have a wheel."""
    source: str = ""
    """The URL or folder that lists the wheel; empty for the default index."""
    index: str | None = None
    """The default index that lists the wheel, if it is not PyPI."""
    is_labeled: bool = False
    """Whether the wheel's version contains the backend, as in ``+cu128``."""

    # These fields are only for other packages.
    metadata_version: str | None = None
    """The version in METADATA if only the file name has a local label.

    For example, METADATA has the version 2.8.3, and the file name has
    2.8.3+cu12torch2.9.
    """
    system: str | None = None
    """The platform of the libraries, such as ``linux-x86_64``, or ``any``."""

    depth: int = Depth.METADATA
    """The ``Depth`` to which the wheel was read."""
    reading: int = READING
    """The ``READING`` of the rules that read the wheel."""

    @property
    def has_current_rules(self) -> bool:
        """Whether the current inspection rules wrote the row."""
        return self.reading == READING

    @property
    def architectures(self) -> tuple[str, ...]:
        """All architectures of the wheel's GPU code."""
        return sort_architectures(
            name for code in self.codes for name in code.architectures
        )

    @property
    def may_use_gpu(self) -> bool:
        """Whether the wheel has GPU code, opens CUDA, or requires torch."""
        opens_cuda = any(name.startswith("libcudart") for name in self.opens)
        return bool(self.codes) or opens_cuda or self.requires_torch

    @property
    def requires_torch(self) -> bool:
        """Whether METADATA requires torch."""
        return "torch" in requirement_names(self.requirements())

    @property
    def witness(self) -> str | None:
        """The library that shows the use of CUDA by linking or by GPU code."""
        if self.linked:
            return self.linked
        return self.codes[0].library if self.codes else None

    def requirements(self) -> Iterator[Requirement]:
        """Return the requirements in the wheel's METADATA."""
        return requirements_of_metadata(self.requires)

    @property
    def declared_cuda(self) -> int | None:
        """The CUDA major from the vendor, name, or version label, if any."""
        # The local version label is only in the file name.
        label = self.file.partition("+")[2].partition("-")[0]
        return (
            load_members().stated_cuda(
                self.package, Version(self.version), self.platform
            )
            or parse_name_cuda(self.package)
            or parse_label_cuda(label)
        )

    @property
    def base(self) -> str | None:
        """The torch index or custom default index with the wheel, if any."""
        return self.index or self.source.removesuffix(f"/{self.backend}") or None

    @property
    def toolkit(self) -> tuple[int, int] | None:
        """The CUDA version of torch as numbers."""
        return parse_toolkit(self.cuda)

    def build(self) -> Build:
        """Convert the row of a torch wheel to a build of the catalog."""
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
            learned=self.learned[:10],
        )


def _libraries(requirements: Iterable[Requirement]) -> Iterator[tuple[str, str]]:
    """Yield the name and version of the cuDNN that torch pins."""
    for one in requirements:
        if one.pinned and "cudnn" in one.name.split("-"):
            yield "cudnn", one.pinned


def requirements_of_metadata(texts: Iterable[str]) -> Iterator[Requirement]:
    """Yield the requirements in METADATA, skipping malformed ones."""
    for text in texts:
        with suppress(UsageError):
            yield parse_requirement(text)
