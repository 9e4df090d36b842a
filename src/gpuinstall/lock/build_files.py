"""The files from which a build backend reads what a folder's package requires, as a digest that a lock records."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.files import parse_toml, read_raw
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.lock.declaration import PROJECT_FILES
from gpuinstall.sources.requirements_file import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.lock.lock import Lock

BUILD_FILES_DIGEST = "build-files-digest"
"""The key of the digest in a lock."""
BUILD_FILES = (
    "pyproject.toml, setup.py or setup.cfg of a folder, or a list of requirements that it names,"
)
"""What they are called in messages."""
_LIST = re.compile(rb"[\w./-]+\.(?:txt|in)\b", re.ASCII)


def build_files_digest(requirements: Iterable[str], folder: Path) -> str:
    """Return the digest of the build files of all folders that are requested; empty if there are none.

    The project in ``folder`` itself counts only if its requirements are not written in its pyproject.toml: those are
    requirements of the lock.
    """
    contents = dict[str, list[Any]]()
    for requirement in map(parse_requirement, requirements):
        if requirement.url is None or requirement.is_remote:
            continue
        path = Path(requirement.url)
        place = folder / path.expanduser()
        table = _static_requirements(place)
        if table is None:
            digests = _file_digests(place)
            contents[requirement.url] = list(digests)
        elif place.resolve() != folder.resolve():
            contents[requirement.url] = table
    if not any(contents.values()):
        return ""
    text = json.dumps(contents, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    return digest.hexdigest()


def changed_build_files(lock: Lock, folder: Path) -> Iterator[Reason]:
    """Yield why a lock is stale, if the build files of its folders have changed since it was made."""
    digest = build_files_digest(lock.inputs, folder)
    if not has_same_build_files(lock, digest):
        yield Reason("inputs-changed", f"{BUILD_FILES} has changed since it was made")


def has_same_build_files(lock: Lock, digest: str) -> bool:
    """Whether a lock was made from build files of this digest, as far as it says so."""
    recorded = lock.evidence.get(BUILD_FILES_DIGEST)
    return recorded in (None, digest)


def _static_requirements(project: Path) -> list[Any] | None:
    """Return what a project requires by its pyproject.toml; None if only its build backend knows it."""
    try:
        text = read_raw(project / PROJECT).decode()
        table = parse_toml(text).get("project")
    except (OSError, ValueError):
        return None
    if not isinstance(table, dict):
        return None
    if "dependencies" in table.get("dynamic", ()):
        return None
    return [
        table.get("dependencies"),
        table.get("optional-dependencies"),
        table.get("requires-python"),
    ]


def _file_digests(project: Path) -> Iterator[tuple[str, str]]:
    """Yield the digest of each build file, and of the lists of requirements that it names, as many a setup.py does."""
    names = list(PROJECT_FILES)
    for name in names:  # which grows
        with suppress(OSError):
            # One digest for both line ends: Git writes those of the system.
            raw = read_raw(project / name, project)
            text = raw.replace(b"\r\n", b"\n")
            yield name, hashlib.sha256(text).hexdigest()
            folder = posixpath.dirname(name)
            for match in _LIST.findall(text):
                path = posixpath.join(folder, match.decode())
                if path not in names:
                    names.append(path)
