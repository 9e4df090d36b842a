"""A command under the file rules of Windows, simulated on Linux.

LAB_WINDOWS names the folder in which the rules apply. In a command's environment, it
makes ``tests.lab.forked`` simulate them. The rules are from the Win32 documentation of
DeleteFile and MoveFileEx and in "Naming Files, Paths, and Namespaces":

- A file that a process has open cannot be renamed, replaced, or removed (error 32). A
  read-only file cannot be removed.
- A folder cannot be renamed or removed while a process works in it, runs a program from
  it, or has one of its files open.
- A rename replaces no folder. ``os.rename`` replaces nothing except the file itself. A
  folder cannot be opened. Creating a symbolic link requires a privilege.
- File names are not case-sensitive. Device names and some characters are not allowed. A
  path has at most 259 characters.

The modules of gpuinstall see the ``os`` of Windows: ``os.name`` is ``nt``, and
Unix-only attributes are missing. Modules that select file operations by
``sys.platform`` see ``win32``. Environments have Scripts, python.exe, and
Lib\\site-packages next to uv's own folders. A program without a folder is searched as
by CreateProcess: next to this process's program, then on this process's PATH, whatever
PATH the new process receives. Machine facts, uv, pip, and torch are Linux's.

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
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import ModuleType, SimpleNamespace
from typing import Any

from gpuinstall.base.process import Finished

FOLDER = "LAB_WINDOWS"
HOME = len("C:\\Users\\somebody")
"""Path limit: the simulated folder counts as short as a user's folder."""
MOST = 259
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
UNIX_ONLY = {
    "O_CLOEXEC",
    "O_DIRECTORY",
    "O_NOCTTY",
    "O_NOFOLLOW",
    "O_NONBLOCK",
    "chown",
    "confstr",
    "fchmod",
    "fchown",
    "fork",
    "forkpty",
    "getegid",
    "geteuid",
    "getgid",
    "getloadavg",
    "getpgid",
    "getuid",
    "killpg",
    "lchown",
    "mkfifo",
    "nice",
    "pread",
    "sched_getaffinity",
    "setsid",
    "statvfs",
    "sysconf",
    "uname",
    "wait3",
    "wait4",
}
"""Attributes of ``os`` in Python 3.11 that Linux has and Windows lacks."""
BY_PLATFORM = (
    "base.files",
    "base.interruption",
    "base.process",
    "base.shell",
    "install.transaction",
    "install.hold",
)
"""Modules that select file or process operations by ``sys.platform``."""
SNAPSHOT_S = 0.2
"""Maximum age in seconds of the process list during many operations."""


class Windows:
    """A Python audit hook that enforces Windows' rules in ``folder``."""

    def __init__(self, folder: Path):
        self.folder = str(folder.resolve())
        self.at_work = False
        """Whether the hook itself is reading files, which is not checked."""
        self._used_by_others: list[str] = []
        self._seen = 0.0

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

    def _open(self, path: object, _mode: object, flags: int):
        if place := self._place(path):
            self._check_name(place)
            if Path(place).is_dir():
                raise refusal(errno.EACCES, 5, place)
            if flags & os.O_CREAT:
                self._check_case(place)

    def _os_mkdir(self, path: object, _mode: int, _dir: int):
        if place := self._place(path):
            self._check_name(place)
            self._check_case(place)

    def _os_rename(self, source: object, target: object, *_dirs: int):
        old = self._place(source)
        new = self._place(target)
        if new:
            self._check_name(new)
            self._check_case(new, but=old)
            if new != old and Path(new).is_dir():
                raise refusal(errno.EACCES, 5, new)
        for place in (old, new):
            if place:
                # Cached, because thousands of files are in few folders.
                self._check_use(place, snapshot=not Path(place).is_dir())

    def _os_remove(self, path: object, _dir: int):
        if place := self._place(path):
            self._check_use(place)
            if not Path(place).lstat().st_mode & stat.S_IWUSR:
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
        below = place[len(self.folder) :]
        if HOME + len(below) > MOST:
            raise refusal(errno.ENOENT, 3, place)
        for name in below.split("/"):
            is_device = name.partition(".")[0].lower() in DEVICES
            has_sign = not FORBIDDEN_SIGNS.isdisjoint(name)
            if is_device or has_sign or name.endswith((".", " ")):
                raise refusal(errno.EINVAL, 123, place)

    def _check_case(self, place: str, but: str | None = None):
        """Reject a name that differs only in case from an existing one."""
        path = Path(place)
        if path.name in {"lib", "Lib"}:
            # lib and Lib are the same folder on Windows.
            return
        allowed = {path.name, Path(but or "").name}
        with suppress(FileNotFoundError):
            for entry in path.parent.iterdir():
                if (
                    entry.name.lower() == path.name.lower()
                    and entry.name not in allowed
                ):
                    raise refusal(errno.EEXIST, 183, place)

    def _check_use(self, place: str, *, snapshot: bool = True):
        if not snapshot or monotonic() - self._seen > SNAPSHOT_S:
            self._look_at_others()
        if self._refusal_of_use(place):
            # The process that used it may have ended since.
            self._look_at_others()
        if refused := self._refusal_of_use(place):
            raise refused

    def _look_at_others(self):
        self._used_by_others = []
        for process in Path("/proc").glob("[0-9]*"):
            if process.name != str(os.getpid()):
                self._used_by_others += used_by(process)
        self._seen = monotonic()

    def _refusal_of_use(self, place: str) -> OSError | None:
        for path in (*used_by(Path("/proc/self")), *self._used_by_others):
            if path == place:
                return refusal(errno.EACCES, 32, place)
            if path.startswith(f"{place}/"):
                return refusal(errno.EACCES, 5, place)
        return None


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
        3: "The system cannot find the path specified",
        5: "Access is denied",
        32: "The process cannot access the file because it is being used by another process",
        123: "The filename, directory name, or volume label syntax is incorrect",
        183: "Cannot create a file when that file already exists",
        1314: "A required privilege is not held by the client",
    }
    return OSError(number, texts[windows], path)


class Flavoured(ModuleType):
    """The module ``os`` or ``sys`` as gpuinstall sees it on Windows."""

    def __init__(self, real: ModuleType, missing: frozenset[str], **values: object):
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, _missing=missing, **values)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the real module unless Windows lacks it."""
        if name in self.__dict__["_missing"]:
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r} on Windows"
            )
        return getattr(self.__dict__["_real"], name)


class Library:
    """A library of Windows. Its functions return 0 and find nothing."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Return a new function with a writable ``restype``."""
        return lambda *_arguments: 0


class Started(subprocess.Popen[Any]):
    """Find a program like CreateProcess."""

    def __init__(self, words: Sequence[str], **options: Any):
        folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        program = shutil.which(words[0], path=os.pathsep.join(folders))
        super().__init__([program or words[0], *words[1:]], **options)


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

    windows_os = Flavoured(os, frozenset(UNIX_ONLY), name="nt")
    windows_sys = Flavoured(sys, frozenset(), platform="win32")
    for name, loaded in tuple(sys.modules.items()):
        if name.startswith("gpuinstall.") and vars(loaded).get("os") is os:
            vars(loaded)["os"] = windows_os
        if name.removeprefix("gpuinstall.") in BY_PLATFORM:
            vars(loaded)["sys"] = windows_sys
    sys.modules["msvcrt"] = create_msvcrt()
    vars(ctypes)["windll"] = SimpleNamespace(kernel32=Library(), ntdll=Library())
    rules = Windows(Path(os.environ[FOLDER]))
    process.run = adding_names(process.run, rules)
    os.rename = renaming(os.rename)
    vars(subprocess)["Popen"] = Started
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


def renaming(rename: Callable[..., None]) -> Callable[..., None]:
    """Return ``os.rename`` with Windows' rule against replacing files."""

    def renamed(source: str, target: str, **options: Any):
        if os.path.lexists(target) and os.fspath(source) != os.fspath(target):
            raise refusal(errno.EEXIST, 183, os.fspath(target))
        rename(source, target, **options)

    return renamed
