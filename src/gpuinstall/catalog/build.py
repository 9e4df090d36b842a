"""A build of torch: (torch version, backend, os, arch), and all that decides whether it runs; the wheels of sources."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.backend import CPU, Backend

if TYPE_CHECKING:
    from packaging.tags import Tag
    from packaging.version import Version


DEFAULT_INDEX = ""
"""What stands for the default index where a source is named."""


@dataclass(frozen=True)
class Wheel:
    """One wheel of a source.

    ``backend`` is the tag of its local version, or that of its page where it has none; ``metadata`` says that
    ``<url>.metadata`` is served; ``size`` is in bytes; ``source`` is the index or folder that lists it;
    ``variants`` is the file that describes the variants of its release, where the page has one.
    """

    package: str
    version: Version
    filename: str
    url: str
    tags: frozenset[Tag]
    sha256: str | None = None
    metadata: bool = False
    metadata_sha256: str | None = None
    size: int | None = None
    backend: str | None = None
    source: str = DEFAULT_INDEX
    requires_python: str | None = None
    variants: str | None = None


@dataclass(frozen=True)
class Build:
    """One build.

    ``code`` are the maker's own names of the code in it, such as ``sm_80``, ``compute_90`` or ``gfx1100``; ``toolkit``
    is the release of the maker's toolkit that it was made with; ``libraries`` are those in the wheel, with their
    versions, that narrow what runs it. ``pythons`` are ``X.Y`` (``X.Yt`` free-threaded) for which a wheel exists;
    ``glibc`` and ``macos`` are the floors of its platform tag; ``confidence`` high, medium, low or unverified;
    ``on_default_index`` says that pip's default index serves this very build, ``labelled`` that its files carry the tag
    (``2.14.1+cu126``).

    A listing sets the rest. ``source`` is where it found the build (None: on the index of torch, as the catalogue
    says; DEFAULT_INDEX; an address or a folder), ``absent`` why it cannot be had today: "withdrawn", "unreachable",
    "failed", "without-code", or as the catalogue says "split". ``unread`` are the wheels of a build that only the
    listing knows, ``obstacle`` says why none of them could be read; ``learned`` is the day on which one was, and the
    facts above are its own.
    """

    torch: Version
    backend: Backend
    os: str
    arch: str
    code: tuple[str, ...] = ()
    toolkit: tuple[int, int] | None = None
    libraries: tuple[tuple[str, str], ...] = ()
    pythons: tuple[str, ...] = ()
    glibc: str | None = None
    macos: str | None = None
    confidence: str = "high"
    on_default_index: bool = False
    labelled: bool = True
    evidence: tuple[str, ...] = ()
    source: str | None = None
    absent: str | None = None
    unread: tuple[Wheel, ...] = ()
    obstacle: str | None = None
    learned: str | None = None

    @cached_property
    def name(self) -> str:
        """The build as people write it: ``2.14.1+cu126``."""
        return f"{self.torch}+{self.backend}"

    @property
    def lists_no_code(self) -> bool:
        """Say whether it was read, is for GPUs, and does not say which."""
        return self.learned is not None and not self.code and self.backend != CPU

    @cached_property
    def platform(self) -> str:
        """Its operating system and processor as the catalogue names them: ``linux_x86_64``."""
        return f"{self.os}_{self.arch}"

    def is_called(self, name: str) -> bool:
        """Say whether a name means this build: its backend, its torch (``2.13`` is every 2.13) or both."""
        torch, _, backend = name.partition("+")
        torches = f"{self.torch}."
        return name == self.backend.tag or (torches.startswith(f"{torch}.") and backend in {"", self.backend.tag})

    def index(self, base: str) -> str | None:
        """The address or folder of its family, where ``base`` is the torch index; None is the default index."""
        if self.source == DEFAULT_INDEX:
            return None
        return self.source or f"{base}/{self.backend}"
