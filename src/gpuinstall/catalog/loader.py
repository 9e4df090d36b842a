"""The authored files, read into a Catalog."""

from __future__ import annotations

from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from gpuinstall.backend import CPU, Backend
from gpuinstall.catalog import authored
from gpuinstall.catalog.catalog import Build, Catalog, Companion, CudaName, KindOfBuilds, Release
from gpuinstall.catalog.drivers import parse_drivers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    _Row = dict[str, Any]

_GPU_PLATFORMS = ("linux_x86_64", "linux_aarch64", "windows_x86_64")
FURTHER = ("rocm", "xpu")
"""The kinds of builds that have files of their own, ``builds_rocm.toml``."""

_CODE_PREFIXES = {"+": "compute_", **dict.fromkeys("0123456789", "sm_")}


@cache
def load_catalog() -> Catalog:
    """Load the catalogue as shipped."""
    return parse_catalog(authored.read_data("builds.toml"), authored.read_data("drivers.toml"))


def parse_catalog(builds: dict[str, Any], drivers: dict[str, Any]) -> Catalog:
    """Make the catalogue of the two authored tables."""
    rows = Rows(builds)
    return Catalog(
        date=builds["date"],
        torch_index=builds["torch_index"],
        builds=tuple(rows.builds()),
        releases={
            version: Release(
                torch=version,
                released=row["released"],
                torchvision=tuple(row["torchvision"].split()),
                torchaudio=tuple(row["torchaudio"].split()),
                triton=row.get("triton"),
                beside=(row["beside"],) if "beside" in row else (),
            )
            for version, row in zip(rows.versions.values(), rows.releases.values(), strict=True)
        },
        drivers=parse_drivers(drivers),
        family=frozenset((*builds["family"], *builds["family_beside"])),
        copied=tuple(builds["copied"]),
        tied=tuple(builds["tied"]),
        companions={
            (row["package"], version): _companion(row, builds["companion_platforms"])
            for row in builds["companions"]
            for version in row["versions"].split()
        },
        settled_python=builds["settled_python"]["version"],
        evidence=_evidence(builds),
        further={kind: partial(_further, rows, kind) for kind in FURTHER},
        cuda_names=_cuda_names,
        collectives=_collectives,
    )


@cache
def _cuda_names() -> Mapping[str, CudaName]:
    rows: dict[str, CudaName] = {}
    for row in authored.read_data("cuda_names.toml")["packages"]:
        by_major = {int(major): names for major, names in row.items() if major.isdecimal()}
        first = {major: names[0] for major, names in by_major.items()}
        rows |= {name: CudaName(major, first) for major, names in by_major.items() for name in names}
    return rows


@cache
def _collectives() -> Mapping[tuple[str, str], str]:
    rows = authored.read_data("collectives.toml")["nccl"]
    return {(row["torch"], row["backend"]): row["version"] for row in rows}


def _further(rows: Rows, kind: str) -> KindOfBuilds:
    if kind not in rows.further:
        table = authored.read_data(f"builds_{kind}.toml")
        chips = authored.read_data(table["chips"])
        rows.further[kind] = KindOfBuilds(tuple(rows.of_kind(table)), chips, _evidence(table))
    return rows.further[kind]


def _evidence(table: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {key: (row["source"], row["date"]) for key, row in table["evidence"].items()}


def _companion(row: _Row, platforms: str) -> Companion:
    pythons = row["pythons"]
    return Companion(
        platforms=frozenset(row.get("platforms", platforms).split()),
        pythons=None if pythons == "any" else frozenset(pythons.split()),
        unlabelled=frozenset(row.get("unlabelled", "").split()),
        backends=_backends(row["backends"]) if "backends" in row else None,
        excluded=frozenset(row.get("excluded", "").split()),
        unverified={platform: _backends(tags) for platform, tags in row.get("unverified", {}).items()},
    )


def _backends(tags: str) -> frozenset[Backend]:
    return frozenset(map(Backend.parse, tags.split()))


class Rows:
    """The tables of ``builds.toml``, each row made into the builds that it stands for."""

    def __init__(self, table: _Row) -> None:
        self.table = table
        self.further: dict[str, KindOfBuilds] = {}
        self.releases: dict[str, _Row] = {row["torch"]: row for row in table["releases"]}
        self.versions = {torch: Version(torch) for torch in self.releases}
        self.glibc = self._floors("glibc")
        self.macos = self._floors("macos")

    def builds(self) -> Iterator[Build]:
        """Make every build: for GPUs, one for each platform of a row; of the CPU, for each release and platform."""
        for row in self.table["builds"]:
            for platform in _GPU_PLATFORMS:
                if platform in row:
                    yield self._for_gpus(row, platform)
        for row in self.table["cpu"]:
            labelled = [] if row.get("labelled") == "never" else self._between(row.get("labelled"))
            for torch in self._between(row.get("first"), row.get("last")):
                yield self._cpu(row, torch, labelled=torch in labelled)

    def of_kind(self, table: _Row) -> Iterator[Build]:
        """Make the builds of another kind: a row is for every release of a minor, those seen and their neighbours."""
        for row in table["builds"]:
            for torch in (torch for torch in self.releases if torch.startswith(f"{row['torch']}.")):
                seen = torch.endswith(".0") or torch in table["seen"].split()
                for platform in (platform for platform in _GPU_PLATFORMS if platform in row):
                    code, confidence, evidence = row[platform]
                    facts = [code, confidence if seen else "medium", evidence]
                    yield self._for_gpus({**row, "torch": torch, platform: facts}, platform)

    def _for_gpus(self, row: _Row, platform: str) -> Build:
        torch = row["torch"]
        release = self.releases[torch]
        backend = Backend.parse(row["tag"])
        os, arch = platform.split("_", 1)
        code, confidence, evidence = row[platform]
        further = release.get("index_pythons", "") if os == "linux" else ""
        return Build(
            torch=self.versions[torch],
            backend=backend,
            os=os,
            arch=arch,
            code=code_names(code),
            toolkit=_toolkit(row.get("toolkit") or backend.version),
            libraries=(("cudnn", row["cudnn"]),) if "cudnn" in row else (),
            pythons=_words(f"{_pythons(release, platform)} {further}"),
            glibc=(os == "linux" and row.get("glibc")) or self.glibc.get((torch, platform)),
            confidence=confidence,
            on_default_index=release["default"].get(platform) == row["tag"],
            labelled=platform not in row.get("unlabelled", "").split(),
            evidence=_words(evidence),
            absent=row.get("absent"),
        )

    def _cpu(self, row: _Row, torch: str, *, labelled: bool) -> Build:
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
            macos=self.macos.get((torch, platform)),
            on_default_index=row["default_index"] and platform not in release["default"],
            labelled=labelled,
            evidence=(row["evidence"],),
        )

    def _floors(self, name: str) -> dict[tuple[str, str], str]:
        """The floors of platform tags, by release and platform: of two rows for one, the later."""
        rows = self.table.get(name, ())
        return {(torch, row["platform"]): row["floor"] for row in rows for torch in self._between(row.get("first"))}

    def _between(self, first: str | None, last: str | None = None) -> list[str]:
        floor, ceiling = (end and self.versions[end] for end in (first, last))
        return [
            torch
            for torch, version in self.versions.items()
            if not (floor and version < floor) and not (ceiling and version > ceiling)
        ]


@lru_cache
def code_names(text: str) -> tuple[str, ...]:
    """Read the code of a build: names, ``"gfx1100"``, or numbers, ``"75 90a +90"``: SASS, and PTX behind a plus."""
    return tuple(_CODE_PREFIXES.get(word[0], "") + word.lstrip("+") for word in text.split())


@lru_cache
def _toolkit(text: str | None) -> tuple[int, int] | None:
    """Read a toolkit's version, ``"13.0"`` or ``"13.0.2"``; None where a build is named by none."""
    if text is None:
        return None
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


@lru_cache
def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _pythons(release: _Row, platform: str) -> str:
    pythons: dict[str, str] = release["pythons"]
    return pythons.get(platform, pythons["any"])
