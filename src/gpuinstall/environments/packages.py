"""The packages of an environment, by the records that their installers left: nothing is imported or run."""

from __future__ import annotations

import base64
import os
import posixpath
import re
from contextlib import suppress
from functools import cache, cached_property
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import DOCUMENT_BYTES, open_regular, parse_json, sha256_of
from gpuinstall.base.location import Location
from gpuinstall.base.requirement import normalized, standard_requirement
from gpuinstall.base.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.requirements import Requirement

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_VERSION = re.compile(r"[\w.+!]*")
_NATIVE = re.compile(r"\.(?:so(?:\.[\d.]+)?|pyd|dll|dylib)\Z", re.IGNORECASE)
_REQUIRED_NAME = re.compile(r"(?m)^Requires-Dist: *([\w.-]+)")
_REQUIRES = re.compile(r"(?m)^Requires-Dist: *(.+)$")
_OF_EXTRA = re.compile(r";.*\bextra\b")
_OF_INSTALLER = re.compile(
    r"\.dist-info/(INSTALLER|RECORD|REQUESTED|direct_url\.json|uv_cache\.json)\Z"
)
_OUTSIDE = re.compile(r"/|(.*/)?\.\.(/|$)")
"""A path in RECORD that leads out of the folder of the packages, as that of a script does."""


class RecordedFile(NamedTuple):
    """A row of RECORD."""

    path: str
    """The path below the folder of the packages."""
    digest: str
    """The SHA-256 as it is written there."""
    size: int
    """In bytes."""


class InstalledPackage(Value):
    """A package of an environment."""

    name: str
    """Its canonical name."""
    version: str
    record: Path
    """The folder of its record (``.dist-info``)."""

    @property
    def is_record_lost(self) -> bool:
        """Whether its RECORD names no file of its wheel: a power cut has emptied it, here or in uv's cache."""
        has_one = file_size(self.record / "RECORD") >= 0
        return has_one and all(_OF_INSTALLER.search(file.path) for file in self.files)

    @cached_property
    def recorded(self) -> tuple[RecordedFile, ...]:
        """All that the installation recorded, scripts and data outside the folder of the packages included."""
        return _read_rows(_text(self.record / "RECORD"))

    @cached_property
    def files(self) -> tuple[RecordedFile, ...]:
        """What the installation recorded, without what lies outside the folder of the packages (scripts)."""
        return tuple(row for row in self.recorded if not _OUTSIDE.match(row.path))

    @cached_property
    def entry_points(self) -> str:
        """The text that names what other packages load of it; empty if there is none."""
        return _text(self.record / "entry_points.txt")

    @property
    def is_native(self) -> bool:
        """Whether it has compiled code."""
        return any(_NATIVE.search(file.path) for file in self.files)

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
        return isfile(self.record / "direct_url.json")

    @property
    def source(self) -> tuple[Path, bool] | None:
        """The folder that it came from, and whether it is editable, by the same file; None if it came from none."""
        with suppress(ValueError, LookupError, TypeError, AttributeError, UsageError):
            origin = parse_json(_text(self.record / "direct_url.json"))
            folder = Path(Location.parse(origin["url"]).path)
            return folder, bool(origin["dir_info"].get("editable"))
        return None

    @property
    def head(self) -> str:
        """The fields of its metadata."""
        return _text(self.record / "METADATA").partition("\n\n")[0]

    @cached_property
    def requires(self) -> tuple[Requirement, ...]:
        """What it requires by its metadata on any system; whether an extra was asked for is recorded nowhere."""
        from packaging.requirements import InvalidRequirement

        requirements = []
        for text in _REQUIRES.findall(self.head):
            if _OF_EXTRA.search(text):
                continue
            with suppress(InvalidRequirement):
                requirements.append(standard_requirement(text))
        return tuple(requirements)


def read_packages(folders: Iterable[Path]) -> tuple[InstalledPackage, ...]:
    """Return the packages in ``folders`` (site-packages); one that lies there twice is there twice."""
    packages = []
    for folder in folders:
        records = [*folder.glob("*.dist-info"), *folder.glob("*.egg-info")]
        for record in sorted(records):
            stem, _, rest = record.stem.partition("-")
            name = normalized(stem)
            version = rest.partition("-py")[0]
            if _NAME.fullmatch(name) and _VERSION.fullmatch(version):
                package = InstalledPackage(name, version, record)
                packages.append(package)
    return tuple(packages)


def required_names(
    requested: Iterable[str], packages: Mapping[str, InstalledPackage]
) -> set[str]:
    """Return what packages require, directly or not, with every extra.

    Args:
        requested: The names of the packages.
        packages: The installed packages by name.
    """
    names = [*requested]
    seen = set(names)
    for name in names:
        if name in packages:
            required = _REQUIRED_NAME.findall(packages[name].head)
            new = set(map(normalized, required)) - seen
            seen |= new
            names += new
    return seen


def top_packages(packages: Iterable[InstalledPackage]) -> tuple[InstalledPackage, ...]:
    """Return the packages that no other requires."""
    packages = tuple(packages)
    required = set[str]()
    for package in packages:
        names = {
            normalized(one.name)
            for one in package.requires
            if one.marker is None or one.marker.evaluate()
        }
        # An extra of its own, as in "pandas[all]", is no other package.
        required |= names - {package.name}
    return tuple(package for package in packages if package.name not in required)


def unmet_requirements(
    packages: Iterable[InstalledPackage],
    versions: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[InstalledPackage, Requirement, str | None]]:
    """Yield the requirements that are not met, each with its package and the version that is there; None if none is.

    Args:
        packages: Whose requirements.
        versions: What is there, by canonical names.
        environment: The values of markers; None: those of the Python that runs this.
    """
    for package in packages:
        for requirement in package.requires:
            if requirement.marker and not requirement.marker.evaluate(environment):
                continue
            version = versions.get(normalized(requirement.name))
            # A pre-release that is there was wanted by whoever put it there.
            if version is None or not requirement.specifier.contains(
                version, prereleases=True
            ):
                yield package, requirement, version


def written_files(package: InstalledPackage, root: Path) -> dict[str, RecordedFile]:
    """Return the files that a package's record names, by their paths below ``root``, the environment."""
    folder = package.record.parent.relative_to(root).as_posix()
    files = {}
    for row in package.recorded:
        path = row.path.replace(os.sep, "/")
        if "../" in path or "//" in path or "./" in path:
            path = posixpath.normpath(posixpath.join(folder, path))
        elif not path.startswith("/"):
            path = f"{folder}/{path}"
        files[path] = row
    return files


# A change reads the same RECORD in the environment before, in the new one and in the one that goes.
@cache
def _read_rows(text: str) -> tuple[RecordedFile, ...]:
    """Read the rows of a RECORD, scripts and data beside the packages included; up to the first that is malformed."""
    import csv

    rows = []
    with suppress(csv.Error, ValueError):
        for path, digest, size in csv.reader(text.splitlines()):
            sha256 = digest.partition("sha256=")[2]
            rows.append(RecordedFile(path, sha256, int(size) if size.isdigit() else 0))
    return tuple(rows)


def recorded_digest(path: Path | str) -> str:
    """Return the SHA-256 of a file as RECORD has it; raise OSError if it cannot be read."""
    digest = bytes.fromhex(sha256_of(Path(path)))
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


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
