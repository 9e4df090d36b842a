"""Load the catalog from the TOML files in ``data``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache, partial
from typing import Any

from gpuinstall.base.advice import Hint
from gpuinstall.base.codec import read_object, words
from gpuinstall.base.machine import Machine
from gpuinstall.base.values import replace
from gpuinstall.base.vendors import BACKEND_ROWS
from gpuinstall.base.versions import CPU, Backend
from gpuinstall.catalog import data_files
from gpuinstall.catalog.catalog import (
    Build,
    Catalog,
    Companion,
    ConfiguredIndex,
    CudaName,
    Release,
    parse_toolkit,
)
from gpuinstall.catalog.drivers import Drivers, load_drivers

_Row = dict[str, Any]

OTHER_KINDS = {row.kind: row.name for row in BACKEND_ROWS[1:]}
"""The vendor of each kind of builds with an own file, such as ``amd.toml``."""


@cache
def load_catalog() -> Catalog:
    """Load the shipped catalog."""
    return parse_catalog(data_files.read_data("builds.toml"), load_drivers())


def parse_catalog(
    builds: _Row,
    drivers: Drivers,
) -> Catalog:
    """Parse the rows of ``builds.toml`` into a catalog."""
    rows = Rows(builds)
    releases = {release.torch: release for release in rows.releases.values()}
    family = [*builds["family"], *builds["family_unknown_to_uv"]]
    return Catalog(
        date=builds["date"],
        torch_index=builds["torch_index"],
        builds=tuple(rows.builds()),
        releases=releases,
        drivers=drivers,
        family=frozenset(family),
        copied=tuple(builds["copied"]),
        tied=tuple(builds["tied"]),
        companions=_parse_companions(builds),
        settled_python=builds["settled_python"]["version"],
        further={kind: partial(rows.builds_of_kind, kind) for kind in OTHER_KINDS},
        chips=data_files.read_vendor,
        cuda_names=_load_cuda_names,
        gpu_packages=_load_gpu_packages,
        driver_commands=_create_driver_commands,
    )


def _parse_companions(builds: _Row) -> dict[tuple[str, str], Companion]:
    companions = {}
    for row in builds["companions"]:
        whole = {"platforms": builds["companion_platforms"], **row}
        companion = read_object(Companion, whole)
        for version in row["versions"].split():
            companions[row["package"], version] = companion
    return companions


@cache
def _load_cuda_names() -> Mapping[str, CudaName]:
    cuda_names = {}
    for row in data_files.read_data("cuda_names.toml")["packages"]:
        majors = [key for key in row if key.isdecimal()]
        first = {int(major): row[major][0] for major in majors}
        for major in majors:
            for name in row[major]:
                cuda_names[name] = CudaName(int(major), first, row.get("lowest"))
    return cuda_names


def _load_gpu_packages() -> frozenset[str]:
    rows = data_files.read_data("extensions.toml")["extensions"]
    return frozenset(row["name"] for row in rows if "lowest" in row)


def _create_driver_commands(
    machine: Machine,
    branch: str,
    is_legacy: bool,
) -> tuple[Hint, ...]:
    # Import the table of failures only here, because only a rejection needs it.
    from gpuinstall.catalog.failures.problems import FixContext, fix

    context = FixContext.of_machine(machine).knowing(branch=branch)
    return fix("driver-missing", replace(context, is_legacy=is_legacy))


class Rows:
    """Rows of ``builds.toml`` that describe builds of torch."""

    def __init__(self, table: _Row) -> None:
        self.table = table
        self.releases = {
            row["torch"]: read_object(Release, row) for row in table["releases"]
        }
        self.glibc = self._read_minimums("glibc")
        self.macos = self._read_minimums("macos")

    def builds(self) -> Iterator[Build]:
        """Yield the CUDA builds of torch, then the CPU builds."""
        for row in self.table["builds"]:
            yield from self._create_gpu_builds(row, row["torch"])
        for row in self.table["cpu"]:
            labeled: Collection[str] = ()
            first_labeled = row.get("labelled")  # prose: the key of the file
            if first_labeled != "never":
                labeled = self._releases_between(first_labeled)
            first = row.get("first")
            last = row.get("last")
            for torch in self._releases_between(first, last):
                yield self._create_cpu_build(row, torch, is_labeled=torch in labeled)

    def builds_of_kind(self, kind: str) -> Iterator[Build]:
        """Yield the builds of another kind of backend.

        Each row of such a file describes a minor release of torch.
        """
        for row in data_files.read_vendor(OTHER_KINDS[kind])["builds"]:
            for torch in self.releases:
                if torch.startswith(f"{row['torch']}."):
                    yield from self._create_gpu_builds(row, torch)

    def _create_gpu_builds(self, row: _Row, torch: str) -> Iterator[Build]:
        # A value that is a list contains the code and evidence for a platform.
        for platform, facts in row.items():
            if isinstance(facts, list):
                yield self._create_platform_build(row, torch, platform)

    def _create_platform_build(
        self,
        row: _Row,
        torch: str,
        platform: str,
    ) -> Build:
        """Create the torch build for a platform from a table row.

        Args:
            row: A row of GPU builds.
            torch: A torch release that the row covers.
            platform: A platform in the row, such as ``linux_x86_64``.
        """
        release = self.releases[torch]
        backend = Backend.parse(row["tag"])
        os, arch = platform.split("_", 1)
        code, confidence, evidence = row[platform]
        absent = "unverified" if confidence == "unverified" else row.get("absent")
        unlabelled = row.get("unlabelled", "")
        toolkit = row.get("toolkit") or backend.version
        cudnn = row.get("cudnn")
        pythons = release.list_pythons_on(platform)
        glibc = self.glibc.get((torch, platform))
        if os == "linux":
            # The torch index has wheels for more Pythons than the default index.
            pythons += release.index_pythons
            glibc = row.get("glibc", glibc)
        return Build(
            torch=release.torch,
            backend=backend,
            os=os,
            arch=arch,
            code=code_names(code),
            toolkit=parse_toolkit(toolkit),
            libraries=(("cudnn", cudnn),) if cudnn else (),
            pythons=pythons,
            glibc=glibc,
            on_default_index=release.default.get(platform) == row["tag"],
            is_labeled=platform not in unlabelled.split(),
            evidence=words(evidence),
            source=row.get("source", ConfiguredIndex.TORCH),
            absent=absent,
        )

    def _create_cpu_build(
        self,
        row: _Row,
        torch: str,
        *,
        is_labeled: bool,
    ) -> Build:
        platform = row["platform"]
        os, arch = platform.split("_", 1)
        release = self.releases[torch]
        return Build(
            torch=release.torch,
            backend=CPU,
            os=os,
            arch=arch,
            pythons=words(row.get("pythons", "")) or release.list_pythons_on(platform),
            glibc=self.glibc.get((torch, platform)),
            macos=self.macos.get((torch, platform)),
            on_default_index=row["default_index"] and platform not in release.default,
            is_labeled=is_labeled,
            evidence=(row["evidence"],),
        )

    def _read_minimums(self, name: str) -> dict[tuple[str, str], str]:
        """Return the minimum glibc or macOS by torch release and platform.

        If several rows apply to a release, the last row has priority.
        """
        floors = {}
        for row in self.table.get(name, ()):
            for torch in self._releases_between(row.get("first")):
                floors[torch, row["platform"]] = row["floor"]
        return floors

    def _releases_between(
        self,
        first: str | None,
        last: str | None = None,
    ) -> list[str]:
        """Return the torch releases from ``first`` to ``last``, inclusive."""
        # The releases in the table are sorted.
        torches = list(self.releases)
        start = torches.index(first) if first else 0
        end = torches.index(last) if last else len(torches)
        return torches[start : end + 1]


@cache
def code_names(text: str) -> tuple[str, ...]:
    """Return the GPU architectures of a build from its row.

    Args:
        text: The names, such as ``gfx1100``, or the numbers of SASS and, after a plus
            sign, of PTX, such as ``75 90a +90``.
    """
    return tuple(map(_parse_code_name, text.split()))


def _parse_code_name(word: str) -> str:
    if word.startswith("+"):
        return f"compute_{word[1:]}"
    return f"sm_{word}" if word[0].isdigit() else word
