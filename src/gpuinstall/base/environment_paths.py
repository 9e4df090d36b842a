"""Where an environment lies, and the folder beside it that holds the journals of its changes."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from os.path import isfile, islink
from pathlib import Path

from gpuinstall.base.errors import UsageError
from gpuinstall.base.shell import quoted
from gpuinstall.base.values import Value

_WORK = ".gpuinstall"
_STAGING = "staging-"
# Not the process's number: a container may give the same one to every run.
_RUN = os.urandom(4).hex()
_PACKAGES = ("lib*/python*/site-packages", "Lib/site-packages")


class Layout(Value):
    """Where an environment that others made has its files."""

    root: Path
    """The folder below which all of them lie."""
    python: Path
    """Its interpreter."""
    version: str
    """Of its Python, ``X.Y``; empty if it was not asked."""
    packages_folders: tuple[Path, ...]
    """The folders of its packages, pure Python's first."""
    search_path: tuple[Path, ...]
    """The folders that it finds packages in, also a Python's below it."""
    prefixes: Mapping[str, str]
    """How paths below the root begin, by how those below a virtual environment do."""


class EnvironmentPaths(Value):
    """One environment at ``venv`` (absolute); the locks of one of ours lie in the folder that holds it.

    Everything else lies in ``work`` on the same file system: what is about to come, the journals of changes, and the
    file that keeps two runs apart. Git ignores it.
    """

    venv: Path
    layout: Layout | None = None
    """Where one that others made has its files; None if it is ours."""

    @classmethod
    def at(
        cls,
        venv: Path,
        *,
        is_named: bool = True,
    ) -> EnvironmentPaths:
        """Return the paths; a link is followed, so that what it leads to is replaced and the link stays.

        Args:
            venv: The path.
            is_named: Whether ``--venv`` is this path, and not one from which it follows.

        Raises:
            UsageError: no environment can lie there, or a link leads out of the folder that it lies in: a place
                elsewhere has to be named.
        """
        try:
            place = Path(os.path.abspath(venv))  # noqa: PTH100  keeps links above
            if islink(venv):
                place = venv.resolve()
                if not place.is_relative_to(venv.parent.resolve()):
                    message = f"{venv} is a link to {place}"
                    hint = f"Run it again with --venv {quoted(place)}: if that is meant"
                    if not is_named:
                        hint = (
                            f"rm {quoted(venv)}   # the link alone; then run it again"
                        )
                    raise UsageError(
                        "link-elsewhere",
                        message,
                        hint=hint,
                    )
            # Raises for what stands for bytes that are no text.
            str(place).encode("utf-8")
            if not place.name:
                raise _unusable(place, "it is the root of the file system")
            if os.pathsep in str(place):
                raise _unusable(
                    place, f"a folder on PATH cannot have {os.pathsep!r} in its name"
                )
            work = cls(place).work
            with suppress(FileNotFoundError, NotADirectoryError):
                if not stat.S_ISDIR(work.lstat().st_mode):
                    raise _unusable(place, f"{work.name} beside it is not a folder")
        except UnicodeEncodeError:
            raise _unusable(venv, "its path is not UTF-8, as uv requires") from None
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", "a link points to itself")
            raise _unusable(venv, reason) from None
        return cls(place)

    @property
    def folder(self) -> Path:
        """The folder that holds the environment and its locks."""
        return self.venv.parent

    @property
    def is_ours(self) -> bool:
        """Whether it is ours."""
        return self.layout is None

    def check_left(self, folder: Path | None, action: str) -> None:
        """Check that the user is not inside: the shell would go on in what is gone, and Windows lets no such folder go.

        Args:
            folder: The folder in which the command was typed; None: the working folder.
            action: What is about to be done with the environment, ``removed``.

        Raises:
            UsageError: the user is.
        """
        if (folder or Path.cwd()).is_relative_to(self.venv):
            raise UsageError(
                "working-folder",
                f"{self.venv} cannot be {action} while you are inside it",
                hint=f"cd {quoted(self.folder)}   # then run it again",
            )

    @property
    def root(self) -> Path:
        """The folder below which all its files lie."""
        return self.layout.root if self.layout else self.venv

    @property
    def python(self) -> Path:
        """Its interpreter."""
        if self.layout:
            return self.layout.python
        return interpreter(self.venv)

    @property
    def search_path(self) -> list[Path]:
        """The folders that it finds packages in, in this order."""
        if self.layout:
            return list(self.layout.search_path)
        return packages_folders(self.venv)

    @property
    def packages_folders(self) -> list[Path]:
        """The folders of its packages."""
        if self.layout:
            return list(self.layout.packages_folders)
        return packages_folders(self.venv)

    def path_below_root(self, name: str) -> str:
        """Return where a file comes to lie below the root, by its path below a virtual environment."""
        if self.layout is None:
            return name
        prefixes = self.layout.prefixes
        prefix = next(prefix for prefix in prefixes if name.startswith(prefix))
        return prefixes[prefix] + name.removeprefix(prefix)

    @property
    def work(self) -> Path:
        """The folder of the transactions."""
        if self.layout:
            return self.layout.packages_folders[0] / _WORK
        return self.venv.with_name(f"{self.venv.name}{_WORK}")

    @property
    def staging(self) -> Path:
        """What is about to come, in a folder of this run alone: a uv whose run was killed may still write."""
        return self.work / f"{_STAGING}{_RUN}"

    @property
    def scratch(self) -> Path:
        """A journal that is being made, or removed: one that is found there counts for nothing."""
        return self.work / ".new"

    @property
    def current_change(self) -> Path:
        """The journal of a change that is under way, or was killed."""
        return self.work / "changing"

    @property
    def is_unfinished(self) -> bool:
        """Whether a change of it is under way, or was killed."""
        return os.path.lexists(self.current_change)

    @property
    def last_change(self) -> Path:
        """The journal of the last change, which can be taken back."""
        return self.work / "last"

    @property
    def kept_files(self) -> Path:
        """The folder of the user's own files that lay in environments which are gone; nothing of ours removes it."""
        place = self.work if self.layout else self.venv
        return place.with_name(f"{place.name}.kept")


def below(folder: Path, root: Path) -> str:
    """Return the prefix of a folder's paths below another: empty, or with a slash at its end.

    Args:
        folder: The folder; it may be ``root`` itself.
        root: The folder that it lies in, written in the same way: no link is followed.
    """
    name = folder.relative_to(root).as_posix()
    return "" if name == "." else f"{name}/"


def _unusable(venv: Path, reason: str) -> UsageError:
    return UsageError(
        "unusable-place",
        f"{venv} cannot hold an environment: {reason}",
        hint=f"gpuinstall install {other_venv(Path.home())}   # another folder",
    )


def venv_option(venv: Path) -> str:
    """Return what names an environment behind a command: nothing for the usual one."""
    if venv == Path.cwd() / ".venv":
        return ""
    return f" --venv {quoted(venv)}"


def other_venv(folder: Path) -> str:
    """Return ``--venv`` and a path in a folder where nothing lies, for another environment."""
    paths = (folder / f".venv-{number}" for number in count(2))
    free = next(path for path in paths if not os.path.lexists(path))
    return f"--venv {quoted(free.name if folder == Path.cwd() else free)}"


def interpreter(venv: Path) -> Path:
    """Return the Python of an environment; a portable one for Windows has it in the folder itself."""
    if os.name != "nt":
        return venv / "bin" / "python"
    portable = venv / "python.exe"
    if isfile(portable):
        return portable
    return venv / "Scripts" / "python.exe"


def environment_of(python: Path) -> Path:
    """Return the environment of an interpreter, which lies in ``bin`` or ``Scripts``, or in the folder itself."""
    folder = python.parent
    if folder.name in {"bin", "Scripts"}:
        return folder.parent
    return folder


def made_for(venv: Path) -> Path:
    """Return where an environment is to lie: for a staging folder beside which it is built, for any other its own."""
    work = venv.parent
    if work.suffix == _WORK and venv.name.startswith(_STAGING):
        return work.with_suffix("")
    return venv


def packages_folders(venv: Path) -> list[Path]:
    """Return the folders of an environment's packages, each once, as they are below it.

    One of them may be a link to another, as lib64 is, or lead to a disk with more space.
    """
    folders = dict[Path, Path]()
    for pattern in _PACKAGES:
        for path in sorted(venv.glob(pattern)):
            folders.setdefault(path.resolve(), path)
    return sorted(folders.values())
