"""What the wheels of an environment have written where they may not: by the records of what was installed.

uv completes every RECORD with the files that it has put there (tried with 0.13.8: also those that the wheel's own did
not list), so that nothing is missing in it; but a digest in it is what the wheel says of itself.
"""

from __future__ import annotations

import base64
import hashlib
import os
import posixpath
import re
from collections import Counter, defaultdict
from contextlib import suppress
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.environments.ownership import MADE_FILES
from gpuinstall.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.environments.packages import InstalledPackage, RecordedFile

_OF_THE_ENVIRONMENT = re.compile(
    rf"{MADE_FILES}|gpuinstall\.json|pip\.(conf|ini)|constraints\.txt|pylock\.[^/]*toml",
    re.IGNORECASE,
)
"""What the environment's making writes, and we."""
_RECORD = re.compile(r"[^/]+\.(dist-info|egg-info|egg-link)")
_SHIPPED_BY_MISTAKE = re.compile(
    r"(tests?|docs?|examples?|benchmarks|scripts|tools)/.*|[^/]+\.(md|rst|txt)|LICENSE.*"
)
_NAMESPACE = re.compile(rb"extend_path|declare_namespace")
_TOOLS = {
    "pip": "pip",
    "setuptools": "setuptools",
    "pkg_resources": "setuptools",
    "_distutils_hack": "setuptools",
    "uv": "uv",
    "gpuinstall": "gpuinstall",
}
"""Modules of the tools that install, whether they are in the environment or come later, with their packages."""


class WrittenFile(NamedTuple):
    """A file that a package has written: its path below the environment, and the row of its RECORD."""

    package: InstalledPackage
    path: str
    row: RecordedFile

    @property
    def import_path(self) -> str:
        """Its path below the folder of the packages, however its record gets there; empty for scripts and data."""
        folder, _, path = self.path.partition("-packages/")
        return path if folder.endswith(("/site", "/dist")) else ""

    @property
    def top_name(self) -> str:
        """The name in the folder of the packages of what it lies in, or of itself; empty for scripts and data."""
        return self.import_path.partition("/")[0]


class WriteFault(NamedTuple):
    """Packages that have written where they may not."""

    packages: tuple[InstalledPackage, ...]
    """Of several that write the same files, the one to do without comes first."""
    message: str
    is_refused: bool = True
    """Whether they may not be installed; else they are as pip installs them, which lets the last one win."""


def write_faults(
    packages: Sequence[InstalledPackage],
    changed: Collection[str],
    root: Path,
    *,
    family: Collection[str],
    is_tied: Callable[[str], bool],
) -> Iterator[WriteFault]:
    """Yield what packages have written where they may not.

    Args:
        packages: All packages of the environment.
        changed: The names of those that are new: the others were looked at when they were.
        root: The environment.
        family: The packages of torch's index, into whose modules nothing else may write.
        is_tied: Says of a name whether it belongs to torch's build: the family, and what it loads.
    """
    modules = _TOOLS | _modules_of(family, packages)
    owners: dict[str, list[WrittenFile]] = defaultdict(list)
    new = [package for package in packages if package.name in changed]
    for package in new:
        for file in written_files(package, root):
            message = _misplaced(file) or _intruding(file, modules, family)
            if message:
                yield WriteFault((package,), message)
            else:
                owners[file.path].append(file)
    written = frozenset(owners)
    for package in packages:
        files = [] if package in new else list(written_files(package, root))
        if not written.isdisjoint(file.path for file in files):
            for file in files:
                owners[file.path].append(file)
    shared: dict[tuple[InstalledPackage, ...], list[WrittenFile]] = defaultdict(list)
    for files in owners.values():
        if len(files) > 1 and _differ(files, root):
            sharing = sorted((file.package for file in files), key=packages.index)
            shared[tuple(sharing)].append(files[0])
    forms = _forms_of_one_thing(owners) if shared else set()
    for group, files in shared.items():
        *names, last = [f"{package.name} {package.version}" for package in group]
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        module = files[0].top_name.replace("_", "-").lower()
        # The owner of the module comes last.
        owner_last = sorted(group, key=lambda one: is_tied(one.name) or one.name == module)
        is_refused = _is_refused(group, files, root, is_tied, forms)
        yield WriteFault(
            tuple(owner_last),
            f"{', '.join(names)} and {last} write {files[0].path}{more}, with different contents",
            is_refused,
        )


def _forms_of_one_thing(owners: Mapping[str, Sequence[WrittenFile]]) -> set[frozenset[str]]:
    """Return the pairs of packages of which one writes most of what the other does.

    opencv-python and its headless form replace each other as a whole, which pip and uv allow and projects live with.
    """
    counts = Counter[str]()
    shared = Counter[frozenset[str]]()
    for files in owners.values():
        modules = [file for file in files if file.import_path and not _is_record(file)]
        names = {file.package.name for file in modules}
        counts.update(names)
        shared.update(map(frozenset, combinations(names, 2)))
    forms = set()
    for pair, count in shared.items():
        if count * 2 >= max(counts[name] for name in pair):
            forms.add(pair)
    return forms


def _is_refused(
    sharing: Sequence[InstalledPackage],
    files: Sequence[WrittenFile],
    root: Path,
    is_tied: Callable[[str], bool],
    forms: set[frozenset[str]],
) -> bool:
    """Whether packages that write the same files may not be installed together."""
    tied = [is_tied(package.name) for package in sharing]
    if any(tied):
        # The parts of CUDA come from one source and share folders.
        return not all(tied)
    if any(package.name in _TOOLS.values() for package in sharing):
        return True
    names = [package.name for package in sharing]
    pairs = combinations(names, 2)
    if forms.issuperset(map(frozenset, pairs)):
        return False
    return not all(_is_untidy(file, root) for file in files)


def _is_record(file: WrittenFile) -> bool:
    """Whether a file belongs to the record of a package, which no two packages share."""
    return _RECORD.fullmatch(file.top_name) is not None


def _is_untidy(file: WrittenFile, root: Path) -> bool:
    """Whether a file is one that many packages ship unasked, or the head of a package of many distributions."""
    if not file.import_path or _SHIPPED_BY_MISTAKE.fullmatch(file.import_path):
        return True
    if not file.import_path.endswith("/__init__.py"):
        return False
    content = _content(root / file.path) or b""
    return _NAMESPACE.search(content) is not None


def _modules_of(
    family: Collection[str],
    packages: Sequence[InstalledPackage],
) -> dict[str, str]:
    """Return the modules of torch's family in an environment, each with its package."""
    modules: dict[str, str] = {}
    for package in packages:
        if package.name not in family:
            continue
        for file in package.files:
            folder, _, name = file.path.rpartition("/")
            if name == "__init__.py" and "/" not in folder:
                modules[folder.lower()] = package.name
    return modules


def _intruding(
    file: WrittenFile,
    modules: Mapping[str, str],
    family: Collection[str],
) -> str | None:
    """Return that a file lies in a module of torch's family, or of a tool that installs; None if it does not.

    Other packages share folders in good faith: ``nvidia``, ``google``, ``airflow`` and ``mlflow``.
    """
    # "torchvision.libs" is torchvision's, "pip.py" would be imported as pip; some file systems ignore case.
    module = file.top_name.partition(".")[0].lower()
    owner = modules.get(module)
    if owner is None or file.package.name == owner:
        return None
    if file.package.name in family and owner in family:
        return None
    package = f"{file.package.name} {file.package.version}"
    return f"{package} writes {file.path}, a file of a module of {owner}"


def written_files(
    package: InstalledPackage,
    root: Path,
) -> Iterator[WrittenFile]:
    """Yield the files that a package's record names."""
    folder = package.record.parent.relative_to(root).as_posix()
    for row in package.recorded:
        path = row.path.replace(os.sep, "/")
        if "../" in path or "//" in path or "./" in path:
            path = posixpath.normpath(posixpath.join(folder, path))
        elif not posixpath.isabs(path):
            path = f"{folder}/{path}"
        yield WrittenFile(package, path, row)


def _misplaced(file: WrittenFile) -> str | None:
    """Return where a file lies that no package may write; None if it may."""
    package = f"{file.package.name} {file.package.version}"
    if file.path.startswith("../") or posixpath.isabs(file.path) or ":" in file.path:
        return f"{package} names {file.row.path}, which is outside the environment, as a file of its own"
    if _OF_THE_ENVIRONMENT.fullmatch(file.path):
        return f"{package} writes {file.path}, a file of the environment itself"
    if _is_record(file) and file.top_name != file.package.record.name:
        return f"{package} writes {file.import_path}, the record of another package"
    return None


def _differ(files: Sequence[WrittenFile], root: Path) -> bool:
    """Whether one of the packages has recorded other bytes for a file than those that lie there."""
    content = _content(root / files[0].path)
    if content is None:
        return False
    sha256 = hashlib.sha256(content).digest()
    digest = base64.urlsafe_b64encode(sha256).decode().rstrip("=")
    for file in files:
        if file.row.digest and file.row.digest != digest:
            return True
        if not file.row.digest and file.row.size != len(content):
            return True
    return False


def _content(path: Path) -> bytes | None:
    with suppress(OSError), open_regular(path) as file:
        return file.read()
    return None
