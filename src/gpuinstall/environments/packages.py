"""The packages of an environment, by the records that their installers left: nothing is imported or run."""

from __future__ import annotations

import csv
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.files import DOCUMENT_BYTES, open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from packaging.requirements import Requirement

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_VERSION = re.compile(r"[\w.+!]*")
_NATIVE = re.compile(r"\.(?:so(?:\.[\d.]+)?|pyd|dll|dylib)\"?,", re.IGNORECASE)
_OUTSIDE = re.compile(r"/|(.*/)?\.\.(/|$)")


class RecordedFile(NamedTuple):
    """A row of RECORD: the path below the folder of the packages, the SHA-256 as it is written there, the bytes."""

    path: str
    digest: str
    size: int


@dataclass(frozen=True)
class InstalledPackage:
    """One package: its name in its plain form, its version, and the folder of its record (``.dist-info``)."""

    name: str
    version: str
    record: Path

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
        return bool(_NATIVE.search(self.record_text)) and any(
            _NATIVE.search(f"{file.path},") for file in self.files
        )

    @property
    def recorded(self) -> tuple[RecordedFile, ...]:
        """All that the installation recorded, scripts and data outside the folder of the packages included."""
        return _read_rows(self.record_text)

    @cached_property
    def lost(self) -> tuple[str, ...]:
        """The recorded files that are gone or cut, of torch in some 30 ms; what Python makes again does not count."""
        folder = f"{self.record.parent}/"  # joined as text: a Path for each of 12,000 takes longer than its stat
        files = (file for file in self.files if file.size and not file.path.endswith(".pyc"))
        return tuple(file.path for file in files if file_size(folder + file.path) < file.size)

    @property
    def has_address(self) -> bool:
        """Whether it came from a folder, a repository or a file, so that no index need have its version (PEP 610)."""
        return (self.record / "direct_url.json").is_file()

    @property
    def installer(self) -> str:
        """Who put it there, as it says: pip, uv, conda; empty where it does not."""
        name = _text(self.record / "INSTALLER").strip()
        return name if _NAME.fullmatch(name) else ""

    @cached_property
    def requires(self) -> tuple[Requirement, ...]:
        """What it says that it requires, extras and other systems included."""
        from packaging.requirements import InvalidRequirement, Requirement

        head, requirements = _text(self.record / "METADATA").partition("\n\n")[0], []
        for text in re.findall(r"^Requires-Dist: *(.+)$", head, re.MULTILINE):
            with suppress(InvalidRequirement, RecursionError):
                requirements.append(Requirement(text))
        return tuple(requirements)


def read_packages(folders: Iterable[Path]) -> tuple[InstalledPackage, ...]:
    """List the packages in ``folders`` (site-packages); one that lies there twice is named twice."""
    from packaging.utils import canonicalize_name

    packages = []
    for folder in folders:
        for record in sorted((*folder.glob("*.dist-info"), *folder.glob("*.egg-info"))):
            name, _, version = record.stem.partition("-")
            package = InstalledPackage(canonicalize_name(name), version.partition("-py")[0], record)
            if _NAME.fullmatch(package.name) and _VERSION.fullmatch(package.version):
                packages.append(package)
    return tuple(packages)


def bytecode_of(package: InstalledPackage, folder: Path) -> Iterator[str]:
    """Yield the bytecode of a package's modules that is in a folder, by its path there."""
    modules: dict[str, set[str]] = {}
    for file in package.files:
        if file.path.endswith(".py"):
            below, _, name = file.path.rpartition("/")
            modules.setdefault(f"{below}/__pycache__".lstrip("/"), set()).add(
                name.removesuffix(".py")
            )
    for below, names in modules.items():
        with suppress(OSError), os.scandir(folder / below) as entries:
            for entry in entries:
                if entry.name.endswith(".pyc") and entry.name.partition(".")[0] in names:
                    yield f"{below}/{entry.name}"


def top_packages(packages: Iterable[InstalledPackage]) -> tuple[InstalledPackage, ...]:
    """Return the packages that bring all others with them: those that none requires, and one of each circle.

    What is required with an extra alone does not count: who requires the package need not have asked for the extra.
    """
    by_name = {package.name: package for package in packages}
    required = {name: required_names(package) for name, package in by_name.items()}
    anywhere = {other for name, others in required.items() for other in others - {name}}
    top = [name for name in by_name if name not in anywhere]
    brought = _reached(top, required)
    for name in by_name:
        if name not in brought:
            top.append(name)
            brought |= _reached([name], required)
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


def _reached(names: Iterable[str], required: Mapping[str, frozenset[str]]) -> set[str]:
    """Return packages and all that they require, directly or not."""
    reached, waiting = set[str](), list(names)
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
    return tuple(row for row in _read_rows(text) if not _OUTSIDE.match(row.path))


@cache
def _read_rows(text: str) -> tuple[RecordedFile, ...]:
    """Read the rows of a RECORD, scripts and data beside the packages included; up to the first that is malformed."""
    lines = text.splitlines()
    # The csv module takes three times as long, and torch has 12,000 rows; only quotes need it.
    table = csv.reader(lines) if '"' in text else (line.rsplit(",", 2) for line in lines)
    rows: list[RecordedFile] = []
    with suppress(csv.Error, ValueError):  # a row that is cut ends the list
        for path, digest, size in table:
            rows.append(
                RecordedFile(
                    path, digest.partition("sha256=")[2], int(size) if size.isdigit() else 0
                )
            )
    return tuple(rows)


def file_size(path: Path | str) -> int:
    """The size of a file in bytes; -1 where there is none."""
    try:
        return os.stat(path).st_size  # noqa: PTH116  see above
    except OSError:
        return -1


def _text(file: Path) -> str:
    try:
        with open_regular(file) as opened:
            return opened.read(DOCUMENT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
