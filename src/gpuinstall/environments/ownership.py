"""Whose the files of an environment are.

An installer's files are listed in the RECORD of a package, and Python compiles them. Others come
with the making of an environment, or are gpuinstall's own. Everything else is the user's, and no
command of gpuinstall deletes it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import posixpath
import re
from collections import defaultdict
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import open_regular, read_document
from gpuinstall.base.removal import files_below
from gpuinstall.base.shell import quoted
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.environments.environment import NAME, read_marker
from gpuinstall.environments.guard import own_guard_files
from gpuinstall.environments.packages import file_size, read_packages, written_files

if TYPE_CHECKING:
    from collections.abc import (
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from gpuinstall.environments.packages import InstalledPackage, RecordedFile

_COMMAND = re.compile(r"(bin|Scripts)/[^/]+")
_COMPILED = re.compile(r"(.*/)?__pycache__/[^/]+\.(pyc|nbi|nbc)")
"""What Python and Numba compile of a module, beside it."""

MADE_FILES = (
    r"pyvenv\.cfg|CACHEDIR\.TAG|\.lock|lib64"
    r"|(bin|Scripts)/(activate(\.\w+)?|activate_this\.py|Activate\.ps1|deactivate\.\w+|pydoc\.bat)"
    # A venv of Python 3.14 has a link with the Greek letter too.
    r"|(bin|Scripts)/(python|𝜋thon)w?[\d.]*t?(w?\.exe)?"
    r"|(lib/[^/]+|Lib)/site-packages/_virtualenv\.(py|pth)"
)
"""The paths that venv, virtualenv and uv write when they make an environment, as a pattern."""

_MADE = re.compile(MADE_FILES)
_IGNORE_ALL = re.compile(r"(#.*\n)*\*\n?")
"""The ``.gitignore`` that comes with an environment; one of the user's lists something."""


def is_environment(folder: Path) -> bool:
    """Whether a folder is a virtual environment, whoever made it."""
    return (folder / "pyvenv.cfg").is_file() or read_marker(folder) is not None


def user_paths(folder: Path) -> tuple[str, ...]:
    """Return the user's own files and folders in an environment, by their paths in it.

    A folder beside an environment's own is named, and not its files. In a folder that is no environment everything is
    the user's.
    """
    # As text: pathlib takes ten times as long for 17,000 files.
    start = len(f"{folder}{os.sep}")
    paths = {str(file)[start:].replace(os.sep, "/") for file in files_below(folder)}
    owned = _owned_paths(folder, paths) if is_environment(folder) else set()
    shared_folders = {path.partition("/")[0] for path in owned}
    names = set()
    for path in paths - owned:
        first = path.partition("/")[0]
        names.add(path if first in shared_folders else first)
    return tuple(sorted(names))


def recorded_paths(root: Path, folders: Iterable[Path]) -> set[str]:
    """Return the files in an environment that the packages in ``folders`` recorded, by their paths below ``root``."""
    recorded = set[str]()
    for package in read_packages(folders):
        site = package.record.parent
        if not site.is_relative_to(root):
            continue
        base = site.relative_to(root).as_posix()
        for path, row in written_files(package, root).items():
            # Outside the folder of the packages a RECORD could name a file of the user's. Installers
            # write the size of what they put there, virtualenv alone not that of its commands.
            is_command = not row.size and _COMMAND.fullmatch(path)
            is_below = path.startswith(f"{base}/")
            if is_below or is_command or file_size(root / path) == row.size:
                recorded.add(path)
    return recorded


def _owned_paths(venv: Path, paths: Iterable[str]) -> set[str]:
    """Return the paths that an installer, Python, the making of the environment, or gpuinstall wrote."""
    known = recorded_paths(venv, packages_folders(venv)) | _own_files(venv)
    owned = set[str]()
    for path in paths:
        if path in known or _MADE.fullmatch(path) or _COMPILED.fullmatch(path):
            owned.add(path)
    return owned


def _own_files(venv: Path) -> set[str]:
    """Return what gpuinstall wrote, and a ``.gitignore`` that came with the environment."""
    own = own_guard_files(venv)
    marker = read_marker(venv)
    if marker:
        own |= {NAME, marker.lock}
    with suppress(OSError, ValueError):
        if _IGNORE_ALL.fullmatch(read_document(venv / ".gitignore", venv)):
            own.add(".gitignore")
    return own


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


def check_written_files(
    packages: Sequence[InstalledPackage],
    changed: Collection[str],
    root: Path,
    staying: Sequence[InstalledPackage] = (),
) -> Iterator[WriteFault]:
    """Yield the packages that write the same files as others, and may.

    Args:
        packages: All packages of the environment, or those that are about to come into one.
        changed: The names of those that are new: the others were looked at when they were.
        root: The environment, or the folder in which what comes was unpacked as it will lie there.
        staying: The other packages of the environment into which they come.

    Raises:
        InstallationError: a package has written where it may not.
    """
    for fault in write_faults(packages, changed, root, staying):
        if fault.is_refused:
            package = fault.packages[0]
            others = quoted(f"{package.name}!={package.version}")
            raise InstallationError(
                "foreign-files",
                fault.message,
                why="its files would be imported as another package's",
                hint=f"gpuinstall install {others}   # another version; or leave it out",
            )
        yield fault


def write_faults(
    packages: Sequence[InstalledPackage],
    changed: Collection[str],
    root: Path,
    staying: Sequence[InstalledPackage] = (),
) -> Iterator[WriteFault]:
    """Yield what the changed packages have written where they may not; arguments as above."""
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
        with open_regular(path) as file:
            content = file.read()
    except OSError:
        return False
    sha256 = hashlib.sha256(content).digest()
    digest = base64.urlsafe_b64encode(sha256).decode().rstrip("=")
    # Not every RECORD has the hash of a file.
    return any(
        row.digest != digest if row.digest else row.size != len(content) for row in rows
    )
