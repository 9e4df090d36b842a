"""A build of torch: (torch version, backend tag, os, arch), and all that decides whether it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.versions import ComputeCapability

if TYPE_CHECKING:
    from packaging.version import Version

    from gpuinstall.versions import CudaVersion

CPU = "cpu"


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
    measured, high, medium, low or unverified; ``on_default_index`` says that pip's default index serves this
    very build. ``source`` is where a listing found it (None: as the catalogue says), ``unknown`` that only the
    listing knows it.
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
    evidence: tuple[str, ...] = ()
    source: str | None = None
    unknown: bool = False

    @property
    def name(self) -> str:
        """The build as people write it: ``2.14.1+cu126``."""
        return f"{self.torch}+{self.backend}"
