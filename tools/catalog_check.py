"""Report catalog rows that contradict each other.

``python -m tools.catalog_check`` prints the file, the row, and the reason of each error, and
exits with 1 if there is one. A test and the other tools run the same check.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from gpuinstall.base.versions import Backend
from gpuinstall.catalog import data_files
from gpuinstall.catalog.catalog import parse_toolkit
from gpuinstall.catalog.loader import OTHER_KINDS, code_names

Row = dict[str, Any]
Read = Callable[[str], dict[str, Any]]

CONFIDENCE = {"high", "medium", "low", "unverified"}
PLATFORMS = {
    "linux_x86_64",
    "linux_aarch64",
    "windows_x86_64",
    "windows_arm64",
    "macos_arm64",
    "macos_x86_64",
}


def main() -> int:
    """Print the errors of the shipped catalog, and return the exit status."""
    errors = list(find_errors())
    sys.stdout.write("".join(f"{error}\n" for error in errors))
    return bool(errors)


def check_catalog(read: Read | None = None) -> None:
    """Exit with the errors of the catalog, if there are any."""
    errors = list(find_errors(read))
    if errors:
        sys.exit("\n".join(errors))


def find_errors(read: Read | None = None) -> Iterator[str]:
    """Yield the file, the row, and the reason of each error.

    Args:
        read: Reads a file of the catalog. By default, the shipped file is read.
    """
    read = read or data_files.read_data
    table = read("builds.toml")
    torches = [row["torch"] for row in table["releases"]]
    found = [
        *_check_releases(table),
        *_check_builds(table["builds"], torches, table["evidence"], "cuda"),
        *_check_ranges(table, torches),
        *_check_companions(table),
    ]
    yield from (f"builds.toml: {error}" for error in found)
    minors = {".".join(torch.split(".")[:2]) for torch in torches}
    for kind, vendor in OTHER_KINDS.items():
        name = f"{vendor}.toml"
        if (data_files.TABLES / name).exists():
            other = read(name)
            for error in _check_builds(
                other["builds"], minors, other["evidence"], kind
            ):
                yield f"{name}: {error}"
    yield from (f"gpus.toml: {error}" for error in _check_gpus(read("gpus.toml")))


def _check_releases(table: Row) -> Iterator[str]:
    """Yield errors of releases, and builds and companions that they lack."""
    rows = {
        (row["package"], one)
        for row in table["companions"]
        for one in row["versions"].split()
    }
    builds = {(row["torch"], row["tag"]) for row in table["builds"]}
    for row in table["releases"]:
        place = f"releases: torch {row['torch']}"
        pins = {
            name: row.get(name, "").split() for name in ("torchvision", "torchaudio")
        }
        pins["triton"] = [row["triton"].lstrip("=~")] if row.get("triton") else []
        for name, versions in pins.items():
            if not versions and name != "triton":
                yield f"{place}: {name} has no version"
            for version in versions:
                if (name, version) not in rows:
                    yield f"{place}: {name} {version} has no row in companions"
        for platform, tag in row.get("default", {}).items():
            if platform not in PLATFORMS:
                yield f"{place}: {platform} is not a platform"
            if (row["torch"], tag) not in builds:
                yield f"{place}: the default index has {tag}, which has no row in builds"
        yield from _check_evidence(place, row["evidence"], table["evidence"])


def _check_builds(
    rows: Iterable[Row], torches: Collection[str], evidence: Collection[str], kind: str
) -> Iterator[str]:
    """Yield errors of builds for the GPUs of one kind."""
    rows = list(rows)
    counted = Counter((row["torch"], row["tag"]) for row in rows)
    for torch, tag in [key for key, count in counted.items() if count > 1]:
        yield f"builds: torch {torch} {tag}: it has several rows"
    for row in rows:
        place = f"builds: torch {row['torch']} {row['tag']}"
        if row["torch"] not in torches:
            yield f"{place}: torch {row['torch']} has no row in releases"
        yield from _check_tag(place, row["tag"], kind, row.get("toolkit"))
        platforms = {
            key: value for key, value in row.items() if isinstance(value, list)
        }
        if not platforms:
            yield f"{place}: it has no platform"
        for platform, facts in platforms.items():
            if platform not in PLATFORMS:
                yield f"{place}: {platform} is not a platform"
            if len(facts) != 3 or facts[1] not in CONFIDENCE:
                yield f"{place}: {platform} is not [code, confidence, evidence]"
                continue
            if kind == "cuda" and not code_names(facts[0]):
                yield f"{place}: {platform} has no code"
            yield from _check_evidence(f"{place}: {platform}", facts[2], evidence)


def _check_tag(
    place: str, tag: str, kind: str | None, toolkit: str | None
) -> Iterator[str]:
    try:
        backend = Backend.parse(tag)
    except ValueError as error:
        yield f"{place}: {error}"
        return
    if kind and backend.kind != kind:
        yield f"{place}: {tag} is not a tag of {kind}"
    if kind == "cuda" and parse_toolkit(toolkit) != parse_toolkit(backend.version):
        yield f"{place}: the toolkit {toolkit} is not that of {tag}"


def _check_ranges(table: Row, torches: Collection[str]) -> Iterator[str]:
    """Yield errors of rows that apply to a range of releases."""
    for name in ("cpu", "glibc", "macos"):
        for row in table[name]:
            for key in ("first", "last", "labelled"):  # prose: a key of the file
                torch = row.get(key, "never")
                if torch != "never" and torch not in torches:
                    yield f"{name}: {row['platform']}: torch {torch} has no row in releases"
            if row["platform"] not in PLATFORMS:
                yield f"{name}: {row['platform']} is not a platform"
            yield from _check_evidence(
                f"{name}: {row['platform']}", row["evidence"], table["evidence"]
            )


def _check_companions(table: Row) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for row in table["companions"]:
        place = f"companions: {row['package']} {row['versions']}"
        keys = {(row["package"], version) for version in row["versions"].split()}
        if seen & keys:
            yield f"{place}: a version has several rows"
        seen |= keys
        tags = " ".join([row.get("backends", ""), *row.get("unverified", {}).values()])
        for tag in tags.split():
            yield from _check_tag(place, tag, None, None)
        for platform in row.get("platforms", "").split():
            if platform not in PLATFORMS:
                yield f"{place}: {platform} is not a platform"
        yield from _check_evidence(place, row["evidence"], table["evidence"])


def _check_gpus(table: Row) -> Iterator[str]:
    """Yield errors of chips, and of products with unknown chips."""
    for chip, capability in table["chips"].items():
        if not re.fullmatch(r"\d{1,2}\.\d", capability):
            yield f"chips: {chip}: {capability!r} is not a compute capability"
    for name in ("ranges", "lines"):
        for row in table[name]:
            if row["chip"] not in table["chips"]:
                yield f"{name}: {row.get('name', row.get('first'))}: {row['chip']} has no row in chips"
    for key, text in table["pci"].items():
        chip = text.partition(": ")[0]
        if chip not in table["chips"]:
            yield f"pci: {key}: {chip} has no row in chips"
    for row in table["names"]:
        if row["id"] not in table["pci"]:
            yield f"names: {row['id']} has no row in pci"


def _check_evidence(place: str, keys: str, known: Collection[str]) -> Iterator[str]:
    for key in keys.split() or [""]:
        if key not in known:
            yield f"{place}: evidence {key!r} is not in [evidence]"


if __name__ == "__main__":
    sys.exit(main())
