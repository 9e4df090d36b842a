"""A build of torch: (torch version, backend tag, os, arch), and all that decides whether it runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.versions import ComputeCapability

if TYPE_CHECKING:
    from packaging.version import Version

    from gpuinstall.versions import CudaVersion

CPU = "cpu"
DEFAULT_INDEX = ""


class Architecture(NamedTuple):
    """Machine code for one architecture: ``sm_90``, ``sm_90a`` (exactly that one), ``sm_103f`` (its family)."""

    capability: ComputeCapability
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """Read ``"90"``, ``"90a"`` or ``"103f"``."""
        suffix = text[-1] if text[-1] in "af" else ""
        return cls(ComputeCapability.from_sm(int(text.removesuffix(suffix))), suffix)

    def __str__(self) -> str:
        return f"{self.capability.sm}{self.suffix}"


@dataclass(frozen=True)
class Build:
    """One build.

    ``pythons`` are ``X.Y`` (``X.Yt`` free-threaded) for which a wheel exists; ``glibc`` is the floor of its
    platform tag; ``cudnn_floor`` the lowest compute capability that its cuDNN has code for; ``confidence``
    high, medium, low or unverified; ``on_default_index`` says that pip's default index serves this very build,
    ``labelled`` that its files carry the tag (``2.14.1+cu126``).

    A listing sets the rest. ``source`` is where it found the build (None: on the index of torch, as the catalogue
    says; DEFAULT_INDEX; an address or a folder), ``unknown`` that only the listing knows it, ``absent`` why no
    source has it today, "withdrawn" or "unreachable".
    """

    torch: Version
    backend: str
    os: str
    arch: str
    sass: tuple[Architecture, ...] = ()
    ptx: tuple[ComputeCapability, ...] = ()
    toolkit: CudaVersion | None = None
    pythons: tuple[str, ...] = ()
    glibc: str | None = None
    cudnn_floor: ComputeCapability | None = None
    confidence: str = "high"
    on_default_index: bool = False
    labelled: bool = True
    evidence: tuple[str, ...] = ()
    source: str | None = None
    unknown: bool = False
    absent: str | None = None

    @cached_property
    def name(self) -> str:
        """The build as people write it: ``2.14.1+cu126``."""
        return f"{self.torch}+{self.backend}"

    def index(self, base: str) -> str | None:
        """The address or folder of its family, where ``base`` is the torch index; None is the default index."""
        if self.source == DEFAULT_INDEX:
            return None
        return self.source or f"{base}/{self.backend}"
