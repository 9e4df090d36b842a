"""A command under rules of Windows that Wine lacks, simulated on Linux.

LAB_WINDOWS names the folder in which the rules apply. In a command's environment, it
makes ``tests.lab.forked`` simulate them. The rules are from the Win32 documentation of
DeleteFile and MoveFileEx and in "Naming Files, Paths, and Namespaces":

- A folder cannot be renamed or removed while a process works in it, runs a program from
  it, or has one of its files open.
- A read-only file cannot be removed. Creating a symbolic link requires a privilege.
- Device names and some characters are not allowed.

``make test-windows`` runs the other rules. The modules of gpuinstall see ``os.name`` as
``nt``, and modules that select file operations by ``sys.platform`` see ``win32``.
Environments have Scripts, python.exe, and Lib\\site-packages next to uv's own folders.
Machine facts, uv, pip, and torch are Linux's.

``LAB_WINDOWS=FOLDER pytest --basetemp FOLDER/tests …`` runs any test of a ``Workshop``
under these rules.
"""

import ctypes
import errno
import fcntl
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from gpuinstall.base.process import Finished

FOLDER = "LAB_WINDOWS"
DEVICES = {
    "con",
    "prn",
    "aux",
    "nul",
    *(f"{name}{number}" for name in ("com", "lpt") for number in range(1, 10)),
}
FORBIDDEN_SIGNS = frozenset('<>:"|?*\\')
LINKS = re.compile(r"Scripts|site-packages|lib64|python[0-9.]*(\.exe)?")
"""Links that make uv's Linux environment look like one of Windows."""
BY_PLATFORM = (
    "base.files",
    "base.interruption",
    "base.process",
    "base.shell",
    "install.transaction",
    "install.hold",
)
"""Modules that select file or process operations by ``sys.platform``."""


class Windows:
    """A Python audit hook that enforces Windows' rules in ``folder``."""

    def __init__(self, folder: Path):
        self.folder = str(folder.resolve())
        self.at_work = False
        """Whether the hook itself is reading files, which is not checked."""

    def __call__(self, event: str, arguments: tuple[Any, ...]):
        """Reject operations that Windows rejects."""
        rule: Callable[..., None] | None = getattr(
            self, f"_{event.replace('.', '_')}", None
        )
        if rule is None or self.at_work:
            return
        self.at_work = True
        try:
            rule(*arguments)
        finally:
            self.at_work = False

    def _open(self, path: object, _mode: object, _flags: int):
        if place := self._place(path):
            self._check_name(place)

    def _os_mkdir(self, path: object, _mode: int, _dir: int):
        if place := self._place(path):
            self._check_name(place)

    def _os_rename(self, source: object, target: object, *_dirs: int):
        if new := self._place(target):
            self._check_name(new)
        old = self._place(source)
        if old and Path(old).is_dir():
            self._check_use(old)

    def _os_remove(self, path: object, _dir: int):
        place = self._place(path)
        if place and not Path(place).lstat().st_mode & stat.S_IWUSR:
            raise refusal(errno.EACCES, 5, place)

    def _os_rmdir(self, path: object, _dir: int):
        if place := self._place(path):
            self._check_use(place)

    def _os_symlink(self, _target: object, path: object, _dir: int):
        place = self._place(path)
        # A copied environment keeps its links.
        if place and not LINKS.fullmatch(os.path.basename(place)):  # noqa: PTH119
            raise refusal(errno.EINVAL, 1314, place)

    def _place(self, path: object) -> str | None:
        """Return the real path of a file inside the folder, even a new one."""
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        # Resolves only the parent, because the rules apply to a link itself.
        absolute = Path(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100
        place = str(absolute.parent.resolve() / absolute.name)
        if not place.startswith(f"{self.folder}/"):
            return None
        return place

    def _check_name(self, place: str):
        for name in place[len(self.folder) :].split("/"):
            is_device = name.partition(".")[0].lower() in DEVICES
            has_sign = not FORBIDDEN_SIGNS.isdisjoint(name)
            if is_device or has_sign or name.endswith((".", " ")):
                raise refusal(errno.EINVAL, 123, place)

    def _check_use(self, folder: str):
        for process in Path("/proc").glob("[0-9]*"):
            if any(f"{path}/".startswith(f"{folder}/") for path in used_by(process)):
                raise refusal(errno.EACCES, 5, folder)


def used_by(process: Path) -> Iterator[str]:
    """Yield a process's open files, working folder, and program."""
    with suppress(OSError):
        yield str((process / "cwd").readlink())
        yield os.fsdecode((process / "cmdline").read_bytes().partition(b"\0")[0])
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                if not descriptor.is_dir():
                    yield str(descriptor.readlink())


def refusal(number: int, windows: int, path: str) -> OSError:
    """Return the error that Windows raises for an operation."""
    texts = {
        5: "Access is denied",
        123: "The filename, directory name, or volume label syntax is incorrect",
        1314: "A required privilege is not held by the client",
    }
    return OSError(number, texts[windows], path)


class Flavoured(ModuleType):
    """The module ``os`` or ``sys`` as gpuinstall sees it on Windows."""

    def __init__(self, real: ModuleType, **values: object):
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, **values)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the real module."""
        return getattr(self.__dict__["_real"], name)


class Library:
    """A library of Windows. Its functions return 0 and find nothing."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Return a new function with a writable ``restype``."""
        return lambda *_arguments: 0


def adding_names(
    run: Callable[..., Finished], rules: Windows
) -> Callable[..., Finished]:
    """Return a ``run`` that adds Windows' folders to new uv environments."""

    def ran(argv: Sequence[str | Path], **settings: Any) -> Finished:
        finished = run(argv, **settings)
        if not finished.ok or finished.argv[1:2] != ("venv",):
            return finished
        rules.at_work = True
        venv = Path(finished.argv[-1])
        packages = next(venv.glob("lib/python*/site-packages"))
        library = venv / "Lib"
        library.mkdir()
        (library / "site-packages").symlink_to(os.path.relpath(packages, library))
        (venv / "Scripts").symlink_to("bin")
        (venv / "bin" / "python.exe").symlink_to("python")
        rules.at_work = False
        return finished

    return ran


def play():
    """Simulate Windows in this process if its environment requests it."""
    if not os.environ.get(FOLDER):
        return
    from gpuinstall.base import process

    windows_os = Flavoured(os, name="nt")
    windows_sys = Flavoured(sys, platform="win32")
    for name, loaded in tuple(sys.modules.items()):
        if name.startswith("gpuinstall.") and vars(loaded).get("os") is os:
            vars(loaded)["os"] = windows_os
        if name.removeprefix("gpuinstall.") in BY_PLATFORM:
            vars(loaded)["sys"] = windows_sys
    sys.modules["msvcrt"] = create_msvcrt()
    vars(ctypes)["windll"] = SimpleNamespace(kernel32=Library(), ntdll=Library())
    rules = Windows(Path(os.environ[FOLDER]))
    process.run = adding_names(process.run, rules)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    sys.addaudithook(rules)


def create_msvcrt() -> ModuleType:
    """Return a module that locks files as Windows does."""
    module = ModuleType("msvcrt")

    def locking(descriptor: int, _mode: int, _count: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PermissionError(errno.EACCES, error.strerror) from None

    vars(module).update(LK_NBLCK=2, locking=locking)
    return module
