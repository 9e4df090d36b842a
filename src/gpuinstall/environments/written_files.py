"""Packages that write where none may: out of the environment, into its own files, into another's record; or over each other."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from gpuinstall.environments.ownership import MADE_FILES
from gpuinstall.environments.packages import (
    InstalledPackage,
    RecordedFile,
    written_files,
)

# Some file systems ignore case.
_OF_THE_ENVIRONMENT = re.compile(
    rf"{MADE_FILES}|gpuinstall\.json|pip\.(conf|ini)|constraints\.txt|pylock\.[^/]*toml",
    re.IGNORECASE,
)
"""What the environment's making writes, and we."""
_RECORD = re.compile(
    r".*/(?:site|dist)-packages/(?P<name>[^/]+\.(?:dist-info|egg-info|egg-link))(?:/.*)?"
)


def misplaced_file(package: InstalledPackage, root: Path) -> str | None:
    """Return, in words, a file of a package that lies where no package may write; None if there is none.

    Args:
        package: The package.
        root: The environment, or the folder in which it was unpacked as it will lie there.
    """
    name = f"{package.name} {package.version}"
    for path, row in written_files(package, root).items():
        if path.startswith("../") or posixpath.isabs(path) or ":" in path:
            return f"{name} names {row.path}, which is outside the environment, as a file of its own"
        if _OF_THE_ENVIRONMENT.fullmatch(path):
            return f"{name} writes {path}, a file of the environment itself"
        record = _RECORD.fullmatch(path)
        if record and record["name"] != package.record.name:
            return f"{name} writes {path}, in the record of another package"
    return None


def overwritten_files(
    packages: Iterable[InstalledPackage], root: Path
) -> dict[tuple[InstalledPackage, ...], list[str]]:
    """Return the files that several packages write with different contents, by the packages that do.

    Args:
        packages: The packages.
        root: The folder that they lie in, laid out as an environment is.
    """
    writers: dict[str, dict[InstalledPackage, RecordedFile]] = defaultdict(dict)
    for package in packages:
        for path, row in written_files(package, root).items():
            writers[path][package] = row
    overwritten: dict[tuple[InstalledPackage, ...], list[str]] = defaultdict(list)
    for path, rows in writers.items():
        # The parts of a namespace have an empty module, or the same, in common.
        if len({(row.digest, row.size) for row in rows.values()}) > 1:
            overwritten[tuple(rows)].append(path)
    return overwritten
