"""Packages that write where they may not: over each other's files, in torch's or a tool's modules, out of the environment."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpuinstall.catalog.loader import load_catalog
from gpuinstall.environments.ownership import MADE_FILES
from gpuinstall.environments.packages import file_size, recorded_digest, written_files

if TYPE_CHECKING:
    from collections.abc import (
        Collection,
        Iterator,
        Mapping,
        Sequence,
    )

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
_TOOLS = {
    "pip": "pip",
    "setuptools": "setuptools",
    "pkg_resources": "setuptools",
    "_distutils_hack": "setuptools",
    "uv": "uv",
    "gpuinstall": "gpuinstall",
}
"""Modules of the tools that install, whether they are in the environment or come later, with their packages."""


WrittenFiles: TypeAlias = "Mapping[str, RecordedFile]"
"""What a package has written, by the path below the environment."""


class WriteFault(NamedTuple):
    """Packages that have written where they may not."""

    packages: Sequence[InstalledPackage]
    """Of several that write the same files, the one to do without comes first."""
    message: str
    is_refused: bool = True
    """Whether they may not be installed; else they are as pip installs them, which lets the last one win."""


def write_faults(
    packages: Sequence[InstalledPackage],
    changed: Collection[str],
    root: Path,
    staying: Sequence[InstalledPackage] = (),
) -> Iterator[WriteFault]:
    """Yield the faults of packages that have written where they may not, or the same files as others.

    Args:
        packages: All packages of the environment, or those that are about to come into one.
        changed: The names of those that are new: the others were looked at when they were.
        root: The environment, or the folder in which what comes was unpacked as it will lie there.
        staying: The other packages of the environment into which they come.
    """
    modules = _TOOLS | _modules_of_family([*packages, *staying])
    written = {package: written_files(package, root) for package in packages}
    if staying:
        # Their folder is named as that of what comes.
        depth = len(packages[0].record.parent.relative_to(root).parts)
        own_root = staying[0].record.parents[depth]
        written |= {package: written_files(package, own_root) for package in staying}
    owners: dict[str, list[InstalledPackage]] = defaultdict(list)
    for package, files in written.items():
        for path, row in files.items():
            message = None
            if package.name in changed:
                message = _misplaced(package, path, row) or _intruding(
                    package, path, modules
                )
            if message:
                yield WriteFault((package,), message)
            else:
                owners[path].append(package)
    shared: dict[tuple[InstalledPackage, ...], list[str]] = defaultdict(list)
    for path, group in sorted(owners.items()):
        is_new = len(group) > 1 and any(one.name in changed for one in group)
        if is_new and _differ([written[one][path] for one in group], root / path):
            shared[tuple(group)].append(path)
    for sharing, paths in shared.items():
        *names, last = [f"{package.name} {package.version}" for package in sharing]
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        module = _top_name(paths[0]).replace("_", "-").lower()
        is_tied = load_catalog().is_tied
        yield WriteFault(
            # The owner of the module comes last.
            sorted(sharing, key=lambda one: is_tied(one.name) or one.name == module),
            f"{', '.join(names)} and {last} write {paths[0]}{more}, with different contents",
            _is_refused({package: written[package] for package in sharing}, paths),
        )


def _import_path(path: str) -> str:
    """Return a path below the folder of the packages, however it gets there; empty for scripts and data."""
    folder, _, below = path.partition("-packages/")
    return below if folder.endswith(("/site", "/dist")) else ""


def _top_name(path: str) -> str:
    """Return the name in the folder of the packages of what a file lies in, or of itself; empty for scripts and data."""
    return _import_path(path).partition("/")[0]


def _are_forms_of_one_thing(one: WrittenFiles, other: WrittenFiles) -> bool:
    """Whether one package writes most of the modules of another.

    opencv-python and its headless form replace each other as a whole, which pip and uv allow and projects live with.
    """
    modules = {path for path in one if _import_path(path) and not _is_record(path)}
    others = {path for path in other if _import_path(path) and not _is_record(path)}
    return len(modules & others) * 2 >= max(len(modules), len(others))


def _is_refused(
    sharing: Mapping[InstalledPackage, WrittenFiles], paths: Sequence[str]
) -> bool:
    """Whether packages that write the same files may not be installed together."""
    tied = [load_catalog().is_tied(package.name) for package in sharing]
    if any(tied):
        # The parts of CUDA come from one source and share folders.
        return not all(tied)
    if any(package.name in _TOOLS.values() for package in sharing):
        return True
    pairs = combinations(sharing.values(), 2)
    if all(_are_forms_of_one_thing(*pair) for pair in pairs):
        return False
    return not all(_is_untidy(path) for path in paths)


def _is_record(path: str) -> bool:
    """Whether a file belongs to the record of a package, which no two packages share."""
    return _RECORD.fullmatch(_top_name(path)) is not None


def _is_untidy(path: str) -> bool:
    """Whether a file is a script, data, or one that many packages ship unasked."""
    import_path = _import_path(path)
    return not import_path or _SHIPPED_BY_MISTAKE.fullmatch(import_path) is not None


def _modules_of_family(packages: Sequence[InstalledPackage]) -> dict[str, str]:
    """Return the modules of torch's family in an environment, each with its package."""
    family = load_catalog().family
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
    package: InstalledPackage,
    path: str,
    modules: Mapping[str, str],
) -> str | None:
    """Return that a file lies in a module of torch's family, or of a tool that installs; None if it does not.

    Other packages share folders in good faith: ``nvidia``, ``google``, ``airflow`` and ``mlflow``.
    """
    # "torchvision.libs" is torchvision's, "pip.py" would be imported as pip; some file systems ignore case.
    module = _top_name(path).partition(".")[0].lower()
    owner = modules.get(module)
    if owner in (None, package.name) or {package.name, owner} <= load_catalog().family:
        return None
    return (
        f"{package.name} {package.version} writes {path}, a file of a module of {owner}"
    )


def _misplaced(
    package: InstalledPackage,
    path: str,
    row: RecordedFile,
) -> str | None:
    """Return where a file lies that no package may write; None if it may."""
    name = f"{package.name} {package.version}"
    if path.startswith("../") or posixpath.isabs(path) or ":" in path:
        return f"{name} names {row.path}, which is outside the environment, as a file of its own"
    if _OF_THE_ENVIRONMENT.fullmatch(path):
        return f"{name} writes {path}, a file of the environment itself"
    if _is_record(path) and _top_name(path) != package.record.name:
        return f"{name} writes {_import_path(path)}, the record of another package"
    return None


def _differ(rows: Collection[RecordedFile], path: Path) -> bool:
    """Whether one of the packages has recorded other bytes for a file than those that lie there."""
    try:
        size, digest = file_size(path), recorded_digest(path)
    except OSError:
        return False
    # Not every RECORD has the hash of a file.
    return any(row.digest != digest if row.digest else row.size != size for row in rows)
