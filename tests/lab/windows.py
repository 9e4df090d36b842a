"""A command under the rules of Windows for files: what is in use stays, and names are compared without case.

LAB_WINDOWS names the folder below which they hold; in a command's environment it makes ``tests.lab.forked`` play them.
The rules are those of the Win32 documentation for DeleteFile, MoveFileEx and "Naming Files, Paths, and Namespaces":

- A file that any process has open is neither renamed, replaced nor removed (error 32), nor is a read-only one removed.
- A folder is neither renamed nor removed where a process works in it, runs a program from it, or has a file in it open.
- No rename replaces a folder, ``os.rename`` nothing at all but by itself; a folder is not opened; links need a privilege.
- Some names are taken by devices, some signs are not for names, no path is longer than 259 characters.

The modules of gpuinstall see the ``os`` of Windows: ``os.name`` is ``nt``, and what only Unix has is not there; those
that choose by ``sys.platform`` in what concerns files see ``win32``. Environments have Scripts, python.exe and
Lib\\site-packages beside uv's own. A program that is named without a folder is looked for as CreateProcess does: beside
this process's own, then on this process's PATH, whatever PATH the new one is given. What is read of the machine, and
what uv, pip and torch do, stays Linux.

``LAB_WINDOWS=FOLDER pytest --basetemp FOLDER/tests …`` runs any test of a ``Workshop`` under them.
"""

import errno
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
from types import ModuleType
from typing import Any

from gpuinstall.base.process import Finished

FOLDER = "LAB_WINDOWS"
HOME = len("C:\\Users\\somebody")
"""How long a path is to the folder that people work in: as long the played folder counts."""
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
"""The links of an environment that uv makes on Linux, and those by which it looks like one of Windows."""
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
"""What ``os`` of Python 3.11 has on Linux and not on Windows, as far as somebody might use it."""
BY_PLATFORM = (
    "base.files",
    "base.interruption",
    "base.process",
    "install.transaction",
    "install.hold",
)
"""The modules that choose by ``sys.platform`` what they do to files and processes."""
SNAPSHOT_S = 0.2
"""How old may be what is known of other processes where thousands of files are moved or removed."""


class Windows:
    """The rules, as Python's audit hook; ``folder`` is where they hold."""

    def __init__(self, folder: Path):
        self.folder = str(folder.resolve())
        self.at_work = False
        """Whether the rules themselves look at files: what they do is not judged."""
        self._used_by_others: list[str] = []
        self._seen = 0.0

    def __call__(self, event: str, arguments: tuple[Any, ...]):
        """Refuse what Windows refuses."""
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
                # Thousands of files are moved, and few folders.
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
        # A copy of an environment has the links that it has.
        if place and not LINKS.fullmatch(os.path.basename(place)):  # noqa: PTH119
            raise refusal(errno.EINVAL, 1314, place)

    def _place(self, path: object) -> str | None:
        """The real path of what lies, or would lie, where the rules hold."""
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        # Not resolved as a whole: it may be a link itself, which is then what the rules are about.
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
        """A name that differs in case alone from one that is there means that one, which is never what was meant."""
        path = Path(place)
        if path.name in {"lib", "Lib"}:
            # One folder on Windows.
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
            # Who used it may have ended since.
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
    """Yield the files that a process has open, the folder it works in, and the program it was started as."""
    with suppress(OSError):
        yield str((process / "cwd").readlink())
        yield os.fsdecode((process / "cmdline").read_bytes().partition(b"\0")[0])
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                if not descriptor.is_dir():
                    yield str(descriptor.readlink())


def refusal(number: int, windows: int, path: str) -> OSError:
    """Return the error that Windows would give."""
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
    """``os`` or ``sys`` as gpuinstall's modules see it."""

    def __init__(self, real: ModuleType, missing: frozenset[str], **values: object):
        super().__init__(real.__name__)
        self.__dict__.update(_real=real, _missing=missing, **values)

    def __getattr__(self, name: str) -> Any:
        """Give what the system has."""
        if name in self.__dict__["_missing"]:
            raise AttributeError(
                f"module {self.__name__!r} has no attribute {name!r} on Windows"
            )
        return getattr(self.__dict__["_real"], name)


class Started(subprocess.Popen[Any]):
    """A program, found as CreateProcess finds it."""

    def __init__(self, words: Sequence[str], **options: Any):
        folders = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        program = shutil.which(words[0], path=os.pathsep.join(folders))
        super().__init__([program or words[0], *words[1:]], **options)


def adding_names(
    run: Callable[..., Finished], rules: Windows
) -> Callable[..., Finished]:
    """Return what runs programs so that each environment that uv makes has the folders of Windows, by links."""

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
    """Let this process be on Windows, if its environment says so."""
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
    rules = Windows(Path(os.environ[FOLDER]))
    process.run = adding_names(process.run, rules)
    os.rename = renaming(os.rename)
    vars(subprocess)["Popen"] = Started
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    sys.addaudithook(rules)


def renaming(rename: Callable[..., None]) -> Callable[..., None]:
    """Return ``os.rename`` as Windows has it, which replaces nothing."""

    def renamed(source: str, target: str, **options: Any):
        if os.path.lexists(target) and os.fspath(source) != os.fspath(target):
            raise refusal(errno.EEXIST, 183, os.fspath(target))
        rename(source, target, **options)

    return renamed
