"""The packages of an environment, by the records that their installers left: nothing is imported or run."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.files import DOCUMENT_BYTES, open_regular
from gpuinstall.base.regex import regex
from gpuinstall.base.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from packaging.requirements import Requirement

_NAME = regex(r"[a-z0-9][a-z0-9-]*")
_VERSION = regex(r"[\w.+!]*")
_NATIVE = regex(r"\.(?:so(?:\.[\d.]+)?|pyd|dll|dylib)\Z", re.IGNORECASE)
_REQUIRES = regex(r"(?m)^Requires-Dist: *(.+)$")
_OUTSIDE = regex(r"/|(.*/)?\.\.(/|$)")


class RecordedFile(NamedTuple):
    """A row of RECORD."""

    path: str
    """The path below the folder of the packages."""
    digest: str
    """The SHA-256 as it is written there."""
    size: int
    """In bytes."""


@dataclass(frozen=True)
class InstalledPackage:
    """A package of an environment."""

    name: str
    """Its canonical name."""
    version: str
    record: Path
    """The folder of its record (``.dist-info``)."""

    @cached_property
    def record_text(self) -> str:
        """The text of RECORD; empty if there is none."""
        return _text(self.record / "RECORD")

    @cached_property
    def files(self) -> tuple[RecordedFile, ...]:
        """What the installation recorded, without what lies outside the folder of the packages (scripts)."""
        return parse_record(self.record_text)

    @cached_property
    def entry_points(self) -> str:
        """The text that names what other packages load of it; empty if there is none."""
        return _text(self.record / "entry_points.txt")

    @property
    def is_native(self) -> bool:
        """Whether it has compiled code."""
        return any(_NATIVE.search(file.path) for file in self.files)

    @property
    def recorded(self) -> tuple[RecordedFile, ...]:
        """All that the installation recorded, scripts and data outside the folder of the packages included."""
        return _read_rows(self.record_text)

    @cached_property
    def lost(self) -> tuple[str, ...]:
        """The recorded files that are gone or cut, of torch in some 30 ms; what Python makes again does not count."""
        # Joined as text: a Path for each of 12,000 takes longer than its stat.
        folder = f"{self.record.parent}/"
        lost = []
        for path, _, size in self.files:
            if size and not path.endswith(".pyc") and file_size(folder + path) < size:
                lost.append(path)
        return tuple(lost)

    @property
    def has_address(self) -> bool:
        """Whether it came from a folder, a repository or a file, so that no index need have its version (PEP 610)."""
        return (self.record / "direct_url.json").is_file()

    @property
    def installer(self) -> str:
        """The program that installed it, as it recorded: pip, uv, conda; empty if it did not."""
        name = _text(self.record / "INSTALLER").strip()
        return name if _NAME.fullmatch(name) else ""

    @cached_property
    def requires(self) -> tuple[Requirement, ...]:
        """What it requires by its metadata, extras and other systems included."""
        from packaging.requirements import InvalidRequirement, Requirement

        head = _text(self.record / "METADATA").partition("\n\n")[0]
        requirements = []
        for text in _REQUIRES.findall(head):
            with suppress(InvalidRequirement):
                requirements.append(Requirement(text))
        return tuple(requirements)


def read_packages(folders: Iterable[Path]) -> tuple[InstalledPackage, ...]:
    """Return the packages in ``folders`` (site-packages); one that lies there twice is there twice."""
    from packaging.utils import canonicalize_name

    packages = []
    for folder in folders:
        records = [*folder.glob("*.dist-info"), *folder.glob("*.egg-info")]
        for record in sorted(records):
            stem, _, rest = record.stem.partition("-")
            name = canonicalize_name(stem)
            version = rest.partition("-py")[0]
            if _NAME.fullmatch(name) and _VERSION.fullmatch(version):
                package = InstalledPackage(name, version, record)
                packages.append(package)
    return tuple(packages)


def top_packages(packages: Iterable[InstalledPackage]) -> tuple[InstalledPackage, ...]:
    """Return the packages that bring all others with them: those that none requires, and one of each circle.

    What is required with an extra alone does not count: a package may be required without its extra.
    """
    by_name = {package.name: package for package in packages}
    required = {name: required_names(package) for name, package in by_name.items()}
    required_by_others = set[str]()
    for name, others in required.items():
        required_by_others |= others - {name}
    top = []
    reached = set[str]()
    # Those that none requires come first; of the rest, what they have not reached is in a circle.
    for name in sorted(by_name, key=required_by_others.__contains__):
        if name not in reached:
            top.append(name)
            reached |= _reached(name, required)
    return tuple(by_name[name] for name in sorted(top))


def required_names(package: InstalledPackage) -> frozenset[str]:
    """Return the names of what a package requires without any extra."""
    from packaging.utils import canonicalize_name

    without_extra = {"extra": ""}
    return frozenset(
        str(canonicalize_name(requirement.name))
        for requirement in package.requires
        if requirement.marker is None or requirement.marker.evaluate(without_extra)
    )


def _reached(
    package: str,
    required: Mapping[str, frozenset[str]],
) -> set[str]:
    """Return a package and all that it requires, directly or not."""
    reached = set[str]()
    waiting = [package]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(required.get(name, ()))
    return reached


# A change reads the same RECORD in the environment before, in the new one and in the one that goes.
@cache
def parse_record(text: str) -> tuple[RecordedFile, ...]:
    """Read the rows of a RECORD that lie in the folder of the packages; up to the first that is malformed."""
    rows = _read_rows(text)
    return tuple(row for row in rows if not _OUTSIDE.match(row.path))


def _unquoted_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the rows of a table in which some values are quoted; up to the first that is malformed."""
    import csv

    with suppress(csv.Error):
        yield from csv.reader(lines)


@cache
def _read_rows(text: str) -> tuple[RecordedFile, ...]:
    """Read the rows of a RECORD, scripts and data beside the packages included; up to the first that is malformed."""
    lines = text.splitlines()
    table: Iterable[list[str]] = (line.rsplit(",", 2) for line in lines)
    if '"' in text:
        # The csv module takes three times as long, and torch has 12,000 rows.
        table = _unquoted_rows(lines)
    rows = []
    with suppress(ValueError):
        for path, digest, size in table:
            sha256 = digest.partition("sha256=")[2]
            rows.append(
                RecordedFile(
                    path,
                    sha256,
                    int(size) if size.isdigit() else 0,
                )
            )
    return tuple(rows)


def file_size(path: Path | str) -> int:
    """Return the size of a file in bytes; -1 if there is none."""
    try:
        return os.stat(path).st_size  # noqa: PTH116  a Path takes longer than its stat
    except OSError:
        return -1


def _text(file: Path) -> str:
    try:
        with open_regular(file) as opened:
            return opened.read(DOCUMENT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
