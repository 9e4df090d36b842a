"""The rows of ``builds.toml``, each made into the builds that it stands for."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from gpuinstall.catalog.build import CPU, Architecture, Build
from gpuinstall.versions import ComputeCapability, CudaVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    Row = dict[str, Any]

_CUDA_PLATFORMS = ("linux_x86_64", "linux_aarch64", "windows_x86_64")


class Rows:
    """The tables of ``builds.toml``, and the cuDNN floors of ``drivers.toml``, on the way to builds."""

    def __init__(self, table: Row, cudnn: list[Row]) -> None:
        self.table = table
        self.releases: dict[str, Row] = {row["torch"]: row for row in table["releases"]}
        self.versions = {torch: Version(torch) for torch in self.releases}
        self.cudnn = [(Version(row["version"]), ComputeCapability.parse(row["capability"])) for row in cudnn]
        self.glibc = {
            (torch, row["platform"]): row["floor"]
            for row in table["glibc"]
            for torch in self._between(row.get("first"))
        }

    def builds(self) -> Iterator[Build]:
        """Make every build: of CUDA, one for each platform of a row; of the CPU, for each release and platform."""
        for row in self.table["builds"]:
            for platform in _CUDA_PLATFORMS:
                if platform in row:
                    yield self._cuda(row, platform)
        for row in self.table["cpu"]:
            labelled = [] if row.get("labelled") == "never" else self._between(row.get("labelled"))
            for torch in self._between(row.get("first"), row.get("last")):
                yield self._cpu(row, torch, labelled=torch in labelled)

    def _cuda(self, row: Row, platform: str) -> Build:
        torch = row["torch"]
        release = self.releases[torch]
        os, arch = platform.split("_", 1)
        code, confidence, evidence = row[platform]
        sass, ptx = parse_code(code)
        further = release.get("index_pythons", "") if os == "linux" else ""
        return Build(
            torch=self.versions[torch],
            backend=row["tag"],
            os=os,
            arch=arch,
            sass=sass,
            ptx=ptx,
            toolkit=parse_toolkit(row["toolkit"]),
            pythons=_words(f"{_pythons(release, platform)} {further}"),
            glibc=(os == "linux" and row.get("glibc")) or self.glibc.get((torch, platform)),
            cudnn_floor=self._cudnn_floor(row.get("cudnn")),
            confidence=confidence,
            on_default_index=release["default"].get(platform) == row["tag"],
            labelled=platform not in row.get("unlabelled", "").split(),
            evidence=_words(evidence),
        )

    def _cpu(self, row: Row, torch: str, *, labelled: bool) -> Build:
        platform = row["platform"]
        os, arch = platform.split("_", 1)
        release = self.releases[torch]
        return Build(
            torch=self.versions[torch],
            backend=CPU,
            os=os,
            arch=arch,
            pythons=_words(row.get("pythons") or _pythons(release, platform)),
            glibc=self.glibc.get((torch, platform)),
            on_default_index=row["default_index"] and platform not in release["default"],
            labelled=labelled,
            evidence=(row["evidence"],),
        )

    def _between(self, first: str | None, last: str | None = None) -> list[str]:
        floor, ceiling = (end and self.versions[end] for end in (first, last))
        return [
            torch
            for torch, version in self.versions.items()
            if not (floor and version < floor) and not (ceiling and version > ceiling)
        ]

    def _cudnn_floor(self, cudnn: str | None) -> ComputeCapability | None:
        if cudnn is None:
            return None
        return max((floor for version, floor in self.cudnn if Version(cudnn) >= version), default=None)


@lru_cache
def parse_code(text: str) -> tuple[tuple[Architecture, ...], tuple[ComputeCapability, ...]]:
    """Read the machine code of a build, ``"75 80 90a +90"``: SASS, then what stands behind a plus is PTX."""
    words = text.split()
    sass = tuple(Architecture.parse(word) for word in words if word[0] != "+")
    return sass, tuple(ComputeCapability.from_sm(int(word[1:])) for word in words if word[0] == "+")


@lru_cache
def parse_toolkit(text: str) -> CudaVersion:
    """Read a toolkit's version, ``"13.0"`` or ``"13.0.2"``."""
    major, minor = text.split(".")[:2]
    return CudaVersion(int(major), int(minor))


@lru_cache
def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _pythons(release: Row, platform: str) -> str:
    pythons: dict[str, str] = release["pythons"]
    return pythons.get(platform, pythons["any"])
