"""Compute the paths of an environment and of its journals."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from os.path import isdir, isfile, islink
from pathlib import Path

from gpuinstall.base.advice import Advice, make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import is_inside
from gpuinstall.base.removal import is_mount
from gpuinstall.base.values import Value

WORK = ".gpuinstall"
"""The name of a work folder in an environment, or its suffix next to one."""
KEPT = frozenset({WORK, "lost+found"})
"""The entries of an environment's folder that are never moved or removed."""
JOURNAL = "journal.json"
"""The file that describes a change."""
_STAGING = "staging-"
_LONGEST_PATH = 4096
# Do not use the process ID: all runs in a container can have the same one.
_RUN = os.urandom(4).hex()
_PACKAGES = ("lib*/python*/site-packages", "Lib/site-packages")


class Layout(Value):
    """Interpreter and package folders of an unmanaged environment."""

    root: Path
    """The common parent of all files of the environment."""
    python: Path
    """The interpreter."""
    version: str
    """The Python version as ``X.Y.Z``. Empty if unknown."""
    packages_folders: tuple[Path, ...]
    """The package folders, purelib first."""
    search_path: tuple[Path, ...]
    """The folders of ``sys.path`` with packages."""
    prefixes: Mapping[str, str]
    """The path prefixes below ``root``, by the same prefix in a venv."""


class EnvironmentPaths(Value):
    """Paths that gpuinstall uses for one environment.

    The lock files of a managed environment are in the project. ``work`` is on the same
    file system as the environment, and contains staged environments, the journals of
    changes, and the environment lock. Git ignores it.
    """

    venv: Path
    """The absolute path of the environment."""
    layout: Layout | None = None
    """The layout of an unmanaged environment. None if it is managed."""
    project: Path | None = None
    """The folder of the lock files. None: the parent of the environment."""
    contains_work: bool = False
    """Whether ``work`` is in the environment.

    The environment is mounted, or its parent is read-only.
    """

    @classmethod
    def find(cls, venv: Path, project: Path | None = None) -> EnvironmentPaths:
        """Return the paths of a managed environment, which may be unsuitable.

        Links are followed, so that the target is changed and the link remains.

        Args:
            venv: The path.
            project: The folder of the lock files. None: the parent of ``venv``.
        """
        project = project or venv.absolute().parent
        place = Path(os.path.abspath(follow_redirect(venv)))  # noqa: PTH100  keeps links above
        if islink(place):
            place = Path(os.path.realpath(place))
        contains_work = isdir(place / WORK)
        # A clone can link to any file of this user, so nothing is written next to it.
        is_linked = place != Path(os.path.abspath(venv))  # noqa: PTH100
        is_elsewhere = is_linked and not is_inside(place, project)
        if is_elsewhere and not contains_work:
            contains_work = not os.path.lexists(cls(place).work)
        elif isdir(place) and not os.path.lexists(place / WORK):
            # Another command may have interrupted a change next to the environment.
            is_beside = os.path.lexists(cls(place).work)
            is_beside |= os.access(place.parent, os.W_OK)
            contains_work = is_mount(place) or not is_beside
        return cls(place, project=project, contains_work=contains_work)

    @classmethod
    def at(cls, venv: Path, project: Path | None = None) -> EnvironmentPaths:
        """Return the paths of a managed environment that can be created.

        Args:
            venv: The path.
            project: The folder of the lock files. None: the parent of ``venv``.

        Raises:
            UsageError: The path is unsuitable for an environment.
        """
        try:
            # Raises UnicodeEncodeError for surrogates of undecodable bytes.
            str(venv).encode("utf-8")
            paths = cls.find(venv, project)
            place, work = paths.venv, paths.work
            if islink(place):
                raise _unusable_error(place, "a link points to itself")
            if not place.name:
                raise _unusable_error(place, "it is the root of the file system")
            if os.pathsep in str(place):
                raise _unusable_error(
                    place, f"a folder on PATH cannot have {os.pathsep!r} in its name"
                )
            with suppress(FileNotFoundError, NotADirectoryError):
                if not stat.S_ISDIR(work.lstat().st_mode):
                    raise _unusable_error(
                        place, f"{work.name} next to it is not a folder"
                    )
        except UnicodeEncodeError:
            raise _unusable_error(venv, "uv requires a path in UTF-8") from None
        except OSError as error:
            raise _unusable_error(venv, str(error.strerror)) from None
        return paths

    @property
    def folder(self) -> Path:
        """The folder that contains the environment's lock files."""
        return self.project or self.venv.parent

    @property
    def is_managed(self) -> bool:
        """Whether gpuinstall manages the environment."""
        return self.layout is None

    def check_working_folder(self, folder: Path | None, action: str) -> None:
        """Check that the shell's working folder is outside the environment.

        Windows refuses to delete a working folder.

        Args:
            folder: The folder of the command line. None: the working folder.
            action: The action in the error message: ``removed``.

        Raises:
            UsageError: The working folder is inside the environment.
        """
        if (folder or Path.cwd()).is_relative_to(self.venv):
            raise UsageError(
                "working-folder",
                f"{self.venv} cannot be {action} while you are inside it",
                hint=Advice("cd", (str(self.folder),), note="then run it again"),
            )

    @property
    def root(self) -> Path:
        """The common parent of all files of the environment."""
        return self.layout.root if self.layout else self.venv

    def find_interpreter(self) -> Path:
        """Return the interpreter of the environment."""
        if self.layout:
            return self.layout.python
        return interpreter(self.venv)

    def find_search_path(self) -> list[Path]:
        """Return the folders of ``sys.path`` with packages."""
        if self.layout:
            return list(self.layout.search_path)
        return packages_folders(self.venv)

    def find_packages_folders(self) -> list[Path]:
        """Return the package folders of the environment."""
        if self.layout:
            return list(self.layout.packages_folders)
        return packages_folders(self.venv)

    def path_below_root(self, name: str) -> str:
        """Convert a path in a venv to a path below ``root``."""
        if self.layout is None:
            return name
        prefixes = self.layout.prefixes
        prefix = next(prefix for prefix in prefixes if name.startswith(prefix))
        return prefixes[prefix] + name.removeprefix(prefix)

    @property
    def work(self) -> Path:
        """The folder for staged environments and journals."""
        if self.layout:
            return self.layout.packages_folders[0] / WORK
        if self.contains_work:
            return self.venv / WORK
        return self.venv.with_name(f"{self.venv.name}{WORK}")

    @property
    def staging(self) -> Path:
        """The folder in which this run prepares new packages.

        Each run uses a new folder, because uv of a killed run may still write to the old folder.
        """
        return self.work / f"{_STAGING}{_RUN}"

    @property
    def scratch(self) -> Path:
        """The path at which this run writes an incomplete journal."""
        return self.work / f".new-{_RUN}"

    @property
    def current_change(self) -> Path:
        """The journal of a running or interrupted change."""
        return self.work / "changing"

    @property
    def lock_file(self) -> Path:
        """The file that a running command locks."""
        return self.work / "lock"

    @property
    def pointer(self) -> Path:
        """The file in the environment with the path of the current journal.

        A container may see the environment, but not the folder next to it.
        """
        return self.venv / WORK

    def has_unfinished_change(self) -> bool:
        """Return whether a change is running or was interrupted."""
        return os.path.lexists(self.current_change) or isfile(self.pointer)

    @property
    def last_change(self) -> Path:
        """The journal of the last change, for ``env rollback``."""
        return self.work / "last"

    @property
    def previous(self) -> Path:
        """The path of the environment that the last rebuild replaced."""
        if self.contains_work:
            return self.work / "previous"
        return self.venv.with_name(f"{self.venv.name}.previous")


def follow_redirect(venv: Path) -> Path:
    """Return the environment to which a ``.venv`` file redirects (PEP 832).

    Returns:
        The environment, or ``venv`` itself if it is not such a file.
    """
    with suppress(OSError, ValueError):
        if isfile(venv) and not islink(venv) and venv.stat().st_size <= _LONGEST_PATH:
            line = venv.read_text("utf-8").partition("\n")[0].strip()
            target = venv.parent / line
            # Other tools write the name of an environment into this file.
            is_path = line.startswith((".", os.sep)) or Path(line).is_absolute()
            is_path |= "/" in line and " " not in line
            if line and line.isprintable() and (is_path or isdir(target)):
                return target
    return venv


def relative_prefix(folder: Path, root: Path) -> str:
    """Return a folder's path below ``root`` as a prefix, such as ``"lib/"``.

    Links are not followed.
    """
    name = folder.relative_to(root).as_posix()
    return "" if name == "." else f"{name}/"


def _unusable_error(venv: Path, reason: str) -> UsageError:
    return UsageError(
        "unusable-place",
        f"{venv} cannot be used for an environment: {reason}",
        hint=make_command(
            "install", *unused_venv_option(Path.home()), note="another folder"
        ),
    )


def default_environment() -> str:
    """Return the environment without ``--venv``, relative to the project."""
    names = ("GPUINSTALL_VENV", "UV_PROJECT_ENVIRONMENT")
    return next(filter(None, map(os.environ.get, names)), ".venv")


def venv_option(venv: Path) -> tuple[str, ...]:
    """Return an environment's ``--venv`` option, if it is not the default."""
    if venv == Path.cwd() / default_environment():
        return ()
    return "--venv", str(venv)


def unused_venv_option(folder: Path) -> tuple[str, str]:
    """Return a ``--venv`` option with an unused path in a folder."""
    paths = (folder / f".venv-{number}" for number in count(2))
    free = next(path for path in paths if not os.path.lexists(path))
    return "--venv", free.name if folder == Path.cwd() else str(free)


def interpreter(venv: Path) -> Path:
    """Return the interpreter of an environment."""
    if os.name != "nt":
        return venv / "bin" / "python"
    # An application on Windows can have a portable Python as its environment.
    portable = venv / "python.exe"
    if isfile(portable):
        return portable
    return venv / "Scripts" / "python.exe"


def environment_folder(python: Path) -> Path:
    """Return the environment of an interpreter."""
    folder = python.parent
    if folder.name in {"bin", "Scripts"}:
        return folder.parent
    return folder


def find_final_path(venv: Path) -> Path:
    """Return the path to which a staged environment will be moved."""
    work = venv.parent
    if not venv.name.startswith(_STAGING):
        return venv
    if work.name != WORK:
        return work.with_suffix("") if work.suffix == WORK else venv
    if work.parent.name == "site-packages":
        return find_environment_of(work.parent)
    return work.parent


def find_environment_of(packages: Path) -> Path:
    """Return the environment with a ``site-packages`` folder."""
    # lib/pythonX.Y/site-packages; on Windows, Lib/site-packages.
    return packages.parents[1 if packages.parent.name == "Lib" else 2]


def packages_folders(venv: Path) -> list[Path]:
    """Return the unique package folders of an environment.

    ``lib64`` is a link to ``lib``, or its copy if the environment was copied with followed
    links. A folder can also be a link to another disk.
    """
    folders = dict[Path, Path]()
    for pattern in _PACKAGES:
        for path in sorted(venv.glob(pattern)):
            folders.setdefault(path.resolve(), path)
    found = set(folders.values())
    return sorted(path for path in found if _without_lib64(path, venv) not in found)


def _without_lib64(folder: Path, venv: Path) -> Path | None:
    """Return the same folder below ``lib``, if it is below ``lib64``."""
    first, *rest = folder.relative_to(venv).parts
    is_copy = first == "lib64" and isfile(venv / "pyvenv.cfg")
    return venv.joinpath("lib", *rest) if is_copy else None
