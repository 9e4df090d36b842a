"""Read installed packages from their metadata."""

from __future__ import annotations

import os
import posixpath
import re
from contextlib import suppress
from functools import cache
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import DOCUMENT_BYTES, file_sha256, open_regular, parse_json
from gpuinstall.base.location import Location
from gpuinstall.base.requirement import (
    marker_holds,
    normalize_name,
    parse_specifier,
    parse_standard_requirement,
)
from gpuinstall.base.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

_NAME = r"[a-z0-9][a-z0-9-]*"
_VERSION = r"[\w.+!]*"
_VERSION_FIELD = r"(?m)^Version: *(\S+)"
_NATIVE = r'(?im)^"?([^",\n]*\.(?:so(?:\.[\d.]+)?|pyd|dll|dylib))"?,'
"""A row of RECORD that lists compiled code."""
_REQUIRED_NAME = r"(?m)^Requires-Dist: *([\w.-]+)"
_REQUIRES = r"(?m)^Requires-Dist: *(.+)$"
_REQUIRED_PYTHON = r"(?m)^Requires-Python: *(.+)$"
_EXTRA_MARKER = r";.*\bextra\b"
_INSTALLER_FILES = (
    r"\.dist-info/(INSTALLER|RECORD|REQUESTED|direct_url\.json|uv_cache\.json)\Z"
)
_METADATA = (
    r"METADATA|PKG-INFO|RECORD|WHEEL|INSTALLER|REQUESTED|direct_url\.json|uv_cache\.json"
    r"|[\w-]+\.txt|not-zip-safe|zip-safe"
)
"""Metadata files that installers and setuptools write."""


_KINDS = (".dist-info", ".egg-info", ".egg-link")


class RecordedFile(NamedTuple):
    """Row of a RECORD file."""

    path: str
    """The path, relative to the packages folder."""
    digest: str
    """The SHA-256 in URL-safe Base64, as in RECORD."""
    size: int


class InstalledPackage(Value):
    """An installed package."""

    name: str
    """The canonical name of the package."""
    version: str
    record: Path
    """The ``.dist-info``, ``.egg-info``, or ``.egg-link`` of the package."""

    def find_metadata_files(self) -> list[Path]:
        """Return the metadata files that installers write."""
        if isfile(self.record):
            return [self.record]
        files: list[Path] = []
        # Another tool may remove the package at the same time.
        with suppress(FileNotFoundError):
            files = sorted(self.record.iterdir())
        return [file for file in files if re.fullmatch(_METADATA, file.name)]

    def find_record_fault(self) -> str:
        """Return why RECORD does not list all files, or ""."""
        file = self.record / "RECORD"
        rows, is_malformed = _parse_record(_read_text(file))
        if is_malformed:
            return "has malformed rows"
        # A power cut may leave an empty file, or only the rows of the installer.
        is_lost = all(re.search(_INSTALLER_FILES, row.path) for row in rows)
        return "is empty" if is_lost and file_size(file) >= 0 else ""

    def read_record(self) -> tuple[RecordedFile, ...]:
        """Return the files that RECORD lists."""
        return _parse_record(_read_text(self.record / "RECORD"))[0]

    def read_entry_points(self) -> str:
        """Return the text of ``entry_points.txt``, empty if it is missing."""
        return _read_text(self.record / "entry_points.txt")

    def find_native_files(self) -> list[str]:
        """Return the files with compiled code, relative to the folder."""
        # Creating the 12,000 rows of torch takes 20 ms.
        return re.findall(_NATIVE, _read_text(self.record / "RECORD"))

    def has_address(self) -> bool:
        """Return whether the package was installed from a URL (PEP 610)."""
        return isfile(self.record / "direct_url.json")

    def read_source(self) -> tuple[Path, bool] | None:
        """Return the source folder, and whether it is editable (PEP 610)."""
        with suppress(ValueError, LookupError, TypeError, AttributeError, UsageError):
            origin = parse_json(_read_text(self.record / "direct_url.json"))
            folder = Path(Location.parse(origin["url"]).path)
            return folder, bool(origin["dir_info"].get("editable"))
        return None

    def read_header(self) -> str:
        """Return the header fields of METADATA."""
        return _read_text(self.record / "METADATA").partition("\n\n")[0]

    def read_required_python(self) -> SpecifierSet:
        """Return the versions of Python that the package supports."""
        required = re.search(_REQUIRED_PYTHON, self.read_header())
        # Installers ignore a malformed specifier, too.
        with suppress(ValueError):
            return parse_specifier(required[1] if required else "")
        return parse_specifier("")

    def read_requirements(self) -> tuple[Requirement, ...]:
        """Return the requirements on all platforms, without extras.

        The metadata of a package does not record which extras were requested.
        """
        return _parse_requirements(self.read_header())


def read_packages(folders: Iterable[Path]) -> tuple[InstalledPackage, ...]:
    """Read the packages in ``site-packages`` folders, including duplicates."""
    packages = []
    for folder in folders:
        records = [path for kind in _KINDS for path in folder.glob(f"*{kind}")]
        for record in sorted(filter(_has_metadata, records)):
            stem, _, rest = record.stem.partition("-")
            if record.suffix == ".egg-link":
                # The name of this file has no version, and may have hyphens.
                stem, rest = record.stem, _read_linked_version(record)
            name = normalize_name(stem)
            version = rest.partition("-py")[0]
            if re.fullmatch(_NAME, name) and re.fullmatch(_VERSION, version):
                package = InstalledPackage(name, version, record)
                packages.append(package)
    return tuple(packages)


def _read_linked_version(link: Path) -> str:
    """Return the version of an editable project of setuptools, or ""."""
    folder = Path(_read_text(link).partition("\n")[0].strip())
    for metadata in folder.glob(f"{link.stem.replace('-', '_')}.egg-info/PKG-INFO"):
        version = re.search(_VERSION_FIELD, _read_text(metadata))
        if version:
            return version[1]
    return ""


def _has_metadata(record: Path) -> bool:
    """Return whether a metadata folder contains files of an installer."""
    if record.suffix != ".dist-info":
        return isfile(record) or isfile(record / "PKG-INFO")
    return isfile(record / "METADATA") or isfile(record / "RECORD")


def find_required_names(
    requested: Iterable[str], packages: Mapping[str, InstalledPackage]
) -> set[str]:
    """Return the names of packages and of all their dependencies.

    Args:
        requested: The names of the packages.
        packages: The installed packages by name.
    """
    names = [*requested]
    seen = set(names)
    for name in names:
        if name in packages:
            required = re.findall(_REQUIRED_NAME, packages[name].read_header())
            new = set(map(normalize_name, required)) - seen
            seen |= new
            names += new
    return seen


def find_top_packages(
    packages: Iterable[InstalledPackage], environment: Mapping[str, str]
) -> tuple[InstalledPackage, ...]:
    """Return the installed packages that no other package requires.

    Args:
        packages: The packages.
        environment: The marker values of the environment.
    """
    packages = tuple(packages)
    required = set[str]()
    for package in packages:
        names = {
            normalize_name(one.name)
            for one in package.read_requirements()
            if marker_holds(one.marker, environment)
        }
        # "pandas[all]" requires pandas itself.
        required |= names - {package.name}
    return tuple(package for package in packages if package.name not in required)


def find_unmet_requirements(
    packages: Iterable[InstalledPackage],
    versions: Mapping[str, str],
    environment: Mapping[str, str],
) -> Iterator[tuple[InstalledPackage, Requirement, str | None]]:
    """Yield unmet requirements with their package and the installed version.

    Args:
        packages: The packages with requirements.
        versions: The installed versions by canonical name.
        environment: The marker values of the environment.
    """
    for package in packages:
        for requirement in package.read_requirements():
            if not marker_holds(requirement.marker, environment):
                continue
            version = versions.get(normalize_name(requirement.name))
            # An installed pre-release was requested explicitly.
            allowed = requirement.specifier
            if version is None or not allowed.contains(version, prereleases=True):
                yield package, requirement, version


def find_written_files(
    package: InstalledPackage, root: Path
) -> Mapping[str, RecordedFile]:
    """Return the files in a package's RECORD, relative to the environment."""
    folder = package.record.parent.relative_to(root).as_posix()
    return _locate_files(_read_text(package.record / "RECORD"), folder)


# Commands read the same metadata several times.
@cache
def _locate_files(record: str, folder: str) -> Mapping[str, RecordedFile]:
    """Return the rows of a RECORD file by path.

    Args:
        record: The text of the file.
        folder: The packages folder, relative to the environment.
    """
    files = {}
    for row in _parse_record(record)[0]:
        path = row.path.replace(os.sep, "/")
        if "../" in path or "//" in path or "./" in path:
            path = posixpath.normpath(posixpath.join(folder, path))
        elif not path.startswith("/"):
            path = f"{folder}/{path}"
        files[path] = row
    return files


@cache
def _parse_requirements(header: str) -> tuple[Requirement, ...]:
    from packaging.requirements import InvalidRequirement

    requirements = []
    for text in re.findall(_REQUIRES, header):
        if re.search(_EXTRA_MARKER, text):
            continue
        with suppress(InvalidRequirement):
            requirements.append(parse_standard_requirement(text))
    return tuple(requirements)


@cache
def _parse_record(text: str) -> tuple[tuple[RecordedFile, ...], bool]:
    """Parse a RECORD file, and return whether it has malformed rows."""
    lines = text.splitlines()
    # csv takes twice as long for the 12,000 files of torch.
    rows: Iterable[list[str]] = (line.split(",") for line in lines)
    if '"' in text:
        import csv

        rows = csv.reader(lines)
    files, is_malformed = [], False
    try:
        for row in filter(any, rows):
            if len(row) == 3:
                files.append(_create_row(*row))
            else:
                is_malformed = True
    except ValueError:
        is_malformed = True
    return tuple(files), is_malformed


def _create_row(path: str, digest: str, size: str) -> RecordedFile:
    sha256 = digest.partition("sha256=")[2]
    return RecordedFile(path, sha256, int(size) if size.isdigit() else 0)


def compute_record_digest(path: Path | str) -> str:
    """Return the SHA-256 of a file as encoded in RECORD.

    Raises:
        OSError: The file cannot be read.
    """
    import base64  # slow to import

    digest = bytes.fromhex(file_sha256(Path(path)))
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def file_size(path: Path | str) -> int:
    """Return the size of a file in bytes, or -1 if it is missing."""
    try:
        return os.stat(path).st_size  # noqa: PTH116  creating a Path takes longer than the stat
    except OSError:
        return -1


def _read_text(file: Path) -> str:
    """Return the text of a metadata file, read once until it changes."""
    with suppress(OSError):
        status = file.stat()
        times = status.st_mtime_ns, status.st_ctime_ns
        return _read_version(file, status.st_ino, status.st_size, *times)
    return ""


@cache
def _read_version(file: Path, *_version: int) -> str:
    with open_regular(file) as opened:
        return opened.read(DOCUMENT_BYTES).decode("utf-8", "replace")
