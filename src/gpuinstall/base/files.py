"""Safe access to files in folders of unknown origin.

Only regular files are read, and links that leave a given folder are refused. Files
are replaced atomically, and never written through a link.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import repeat
from ntpath import splitdrive
from os.path import exists, isdir, isfile, islink
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any, ParamSpec, TypeVar

from gpuinstall.base.advice import Advice, Hint, make_shell_line
from gpuinstall.base.errors import GpuInstallError, InstallationError, UsageError
from gpuinstall.base.owners import exposures, is_shared
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quote_word

DOCUMENT_BYTES = 10_000_000
"""The maximum size of a document in bytes, ten times the largest lock file."""
MAX_ENTRIES = 10_000
"""The maximum number of list entries and of lines in a requirements file."""

_VALUES = 2_000_000
"""The maximum number of JSON values.

A lock file that lists 100,000 files has 1,600,000 values.
"""
_WIDEST = 100_000_000
"""The maximum size of a JSON text in memory, in bytes."""
_USUAL_UMASK = ContextVar[int | None]("_USUAL_UMASK", default=None)
# Another user can replace a file with a pipe or terminal before it is opened.
_NONBLOCKING = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)


CLOSE_PROGRAMS = "Close the programs that use it, then run it again"
"""The hint for a file that is in use on Windows."""
RETRY_S = 10.0
"""Seconds to retry while another program uses a file on Windows, as in uv."""
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def retry(
    operation: Callable[_Arguments, _Result],
    *arguments: _Arguments.args,
    **options: _Arguments.kwargs,
) -> _Result:
    """Call a file operation until no other program on Windows uses the file.

    An antivirus program opens each new file for a moment. Then Windows refuses to replace,
    rename, or remove the file, and all of its hard links.

    Raises:
        OSError: The operation fails for another reason, or for ``RETRY_S`` seconds.
    """
    deadline = monotonic() + RETRY_S
    pause = 0.01
    while True:
        try:
            return operation(*arguments, **options)
        except PermissionError:
            if os.name != "nt" or monotonic() >= deadline:
                raise
        sleep(pause)
        pause = min(2 * pause, 0.5)


def open_regular(path: Path | str) -> IO[bytes]:
    """Open a regular file. Raise OSError for a pipe, which would block."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  creating a Path is slower
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(retry(os.open, path, _NONBLOCKING), "rb")


_WITHOUT_TEXT = {"requirements-unreadable", "group-unknown", "extra-unknown"}
"""Codes of errors that quote no text of a file."""
_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  not written to
"""A folder in memory that contains normal files."""


def check_outside(path: Path, file: Path, place: str) -> None:
    """Check that a path outside a project belongs to the same owner.

    Args:
        path: The path, which may lead through links.
        file: The project file that contains the path, and whose owner must match.
        place: The file with the line or the key, for the message.

    Raises:
        UsageError: The path is not a regular file or folder of the same owner.
    """
    target = real_path(path)
    why = None
    try:
        status = target.stat()
        owner = file.stat().st_uid
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    else:
        # /proc/self/environ is a regular file that this user owns.
        if _is_in_kernel_filesystem(target):
            fault = "is a file of the kernel, not of a project"
        elif not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            fault = "is not a regular file or a folder"
        elif status.st_uid != owner:
            fault = "belongs to another user"
            why = "paths outside the folder may lead only to files of the same user"
        else:
            return
    message = f"{place}: {path} {fault}"
    raise UsageError("path-outside", message, why=why)


def _is_in_kernel_filesystem(path: Path) -> bool:
    """Return whether an absolute path is in a kernel file system."""
    return not path.is_relative_to(_SHARED_MEMORY) and any(
        path.is_relative_to(folder) for folder in _KERNEL_FOLDERS
    )


def real_path(path: Path | str) -> Path:
    """Resolve all symbolic links in a path."""
    # Path.resolve raises RuntimeError for a link to itself.
    return Path(os.path.realpath(path))


def find_repository(folder: Path) -> Path:
    """Return the repository that contains a folder, or the folder itself."""
    place = real_path(folder)
    home = real_path(expand_home("~"))
    for parent in (place, *place.parents):
        # Ignore a repository of the home folder, which is not a project.
        if parent == home:
            break
        if exists(parent / ".git"):
            return parent
    return place


def is_inside(path: Path | str, folder: Path) -> bool:
    """Return whether a path is in the repository of a folder.

    Symbolic links are resolved.
    """
    place = real_path(path)
    # The search for the repository reads every parent folder.
    return place.is_relative_to(real_path(folder)) or place.is_relative_to(
        find_repository(folder)
    )


def find_link_outside(path: Path, folder: Path) -> Path | None:
    """Return a link in a folder's repository that leads a path outside."""
    for part in filter(islink, (path, *path.parents)):
        if is_inside(part.parent, folder) and not is_inside(part, folder):
            return part
    return None


def check_output(path: Path, folder: Path | None = None) -> None:
    """Check that no link leads a file or folder to write outside a repository.

    A cloned repository can contain a link to the user's own files.

    Args:
        path: The file or folder to write.
        folder: The folder of the repository. None: the working folder.

    Raises:
        UsageError: A link leads outside.
    """
    link = find_link_outside(path, folder or Path.cwd())
    if link:
        raise create_link_error(link)


def create_link_error(
    link: Path, why: str = "a link that leads outside its folder is not followed"
) -> UsageError:
    """Return an error about a link that leads a file to write outside."""
    return UsageError(
        "leads-outside",
        f"{link} is a link to {real_path(link)}",
        why=why,
        hint=Advice(
            "rm", (str(link),), note="removes only the link; then run it again"
        ),
    )


def leads_outside(path: str) -> bool:
    """Return whether a relative path, such as ``../x``, leaves its folder."""
    # A path from Linux may be used on Windows, which accepts both separators. For the
    # 12,000 files of torch, PureWindowsPath takes 0.2 s.
    drive, place = splitdrive(path)
    parts = place.replace("\\", "/").split("/")
    return bool(drive) or ".." in parts or (len(parts) > 1 and not parts[0])


def is_behind_link(path: Path) -> bool:
    """Return whether a path in a repository leads through a symbolic link."""
    repository = find_repository(path.parent)
    part = Path(os.path.abspath(path))  # noqa: PTH100  links must not be resolved
    while real_path(part) != repository and part != part.parent:
        if islink(part):
            return True
        part = part.parent
    return False


def read_document(path: Path | str, folder: Path | None) -> str:
    """Read a text file.

    Args:
        path: The file.
        folder: The folder that selects the file. None: the user or gpuinstall
            selects it.

    Raises:
        OSError: The file is not regular, is too large, or is outside the repository
            of ``folder``.
        UnicodeDecodeError: The file is not text.
    """
    raw = read_raw(path, folder)
    # TOML is always UTF-8.
    is_toml = Path(path).suffix == ".toml"
    return raw.decode("utf-8-sig") if is_toml else decode_text(raw)


def decode_text(raw: bytes, errors: str = "strict") -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark."""
    # The > operator of PowerShell 5 writes UTF-16.
    has_mark = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = raw.decode("utf-16" if has_mark else "utf-8", errors)
    # Editors on Windows add a byte order mark to UTF-8.
    return text.removeprefix("\ufeff")


def read_raw(path: Path | str, folder: Path | None) -> bytes:
    """Read the bytes of a file; see ``read_document``."""
    # A file in the folder itself is inside unless it is a link.
    is_direct = Path(path).parent == folder and not islink(path)
    if folder is not None and not is_direct and not is_inside(path, folder):
        outside = f"a link points outside {find_repository(folder)}"
        raise OSError(errno.ELOOP, outside, str(path))
    with open_regular(path) as file:
        raw = file.read(DOCUMENT_BYTES + 1)
    if len(raw) > DOCUMENT_BYTES:
        raise OSError(
            errno.EFBIG,
            f"it is larger than {DOCUMENT_BYTES // 1_000_000} MB",
            str(path),
        )
    return raw


@contextmanager
def hide_linked_text(path: Path, *, is_outside: bool = False) -> Iterator[None]:
    """Replace an error in a block that could quote a file behind a link.

    A link, or a path that leads outside, can select a file with secrets.

    Args:
        path: The file that the block parses.
        is_outside: Whether a folder selects the file, which is outside its repository.
    """
    try:
        yield
    except (ValueError, GpuInstallError) as error:
        code = getattr(error, "code", "requirements-malformed")
        if code in _WITHOUT_TEXT or not (is_outside or is_behind_link(path)):
            raise
        kind = type(error) if isinstance(error, GpuInstallError) else UsageError
        # The error is about the file now, not about one requirement.
        raise kind(
            code.replace("requirement-", "requirements-"),
            f"{path} is malformed",
            why="the text of a file behind a symbolic link or outside the repository is not printed",
        ) from None


def find_link_hints(error: Exception) -> tuple[Hint, ...]:
    """Return the fixes if a path is a link that leaves its repository."""
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        link = Path(error.filename)
        return create_link_error(link).fixes if islink(link) else ()
    return ()


def read_json(path: Path | str, folder: Path | None) -> Any:
    """Read a JSON file; see ``read_document`` and ``parse_json``."""
    return parse_json(read_document(path, folder))


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raise ValueError if it is malformed or too large."""
    import json

    text = text if isinstance(text, str) else decode_text(text)
    # A value can need a hundred times the memory of its text, and text four bytes per
    # character.
    if sum(map(text.count, ",{[")) > _VALUES or sys.getsizeof(text) > _WIDEST:
        raise ValueError("it has too many values")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raise ValueError if it is malformed or too large."""
    if not text:
        return {}
    import tomli

    try:
        document = tomli.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except tomli.TOMLDecodeError as error:
        number = getattr(error, "lineno", 1)
        line, *_ = text.split("\n")[number - 1 :]
        raise ValueError(f"{error}: {line[:200].strip()}") from None
    parts: list[tuple[str, Any]] = [("it", document)]
    for key, part in parts:
        if isinstance(part, dict | list):
            check_count(len(part), "entries", key)
            parts += part.items() if isinstance(part, dict) else zip(repeat(key), part)
    return document


def check_count(count: int, things: str, place: str) -> None:
    """Raise ValueError if a document has too many entries."""
    if count > MAX_ENTRIES:
        message = f"{place} has {count} {things}; at most {MAX_ENTRIES} are allowed"
        raise ValueError(message)


def parse_ini(text: str) -> dict[str, dict[str, str]]:
    """Parse the sections of an INI file. Raise ValueError if malformed."""
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error as error:
        # configparser's message would show the lines, which can contain logins. Only
        # ParsingError lists them.
        lines = getattr(error, "errors", None) or [(getattr(error, "lineno", "?"),)]
        raise ValueError(f"line {lines[0][0]} is malformed or a duplicate") from None
    return {name: dict(parser[name]) for name in parser.sections()}


def use_private_tmpdir() -> None:
    """Set TMPDIR to a private folder if other users can change it."""
    folder = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108  not written to
    # The command reports a missing home folder, which is a RuntimeError.
    with suppress(OSError, RuntimeError, InstallationError):
        if is_shared(folder):
            own = own_cache_folder() / "temporary"
            make_private_folder(own)
            os.environ["TMPDIR"] = str(own)


def tighten_umask() -> None:
    """Set a umask that keeps other users from writing to new files.

    The umask also applies to child processes. The next run would refuse a cache or
    environment with files that others can write to.
    """
    # Reading the umask requires setting one.
    usual = os.umask(0o077)
    os.umask(usual | stat.S_IWOTH)
    _USUAL_UMASK.set(usual)


def restore_umask() -> None:
    """Restore the user's umask before running the user's own program."""
    usual = _USUAL_UMASK.get()
    if usual is not None:
        os.umask(usual)


def check_cache(folder: Path, reporter: Reporter) -> None:
    """Create a cache, and warn if other users can change it.

    Args:
        folder: The cache.
        reporter: Receives the warning.

    Raises:
        InstallationError: The user is root, and all users can write to the cache.
    """
    with suppress(InstallationError):  # a later write reports the error
        make_private_folder(folder)
    exposed = list(exposures(folder.absolute()))
    effect = f"can change what is installed from the cache {folder}"
    for one in exposed:
        if one.is_refused:
            raise InstallationError(
                "unsafe-cache",
                f"{one.reason}: other users {effect}",
                hint=Advice(
                    "chmod",
                    ("o-w", str(one.part)),
                    note="or use another cache: XDG_CACHE_HOME, UV_CACHE_DIR",
                ),
            )
    if exposed:
        reporter.warn(f"{exposed[-1].reason}: other users {effect}")


def expand_home(path: str) -> Path:
    """Expand ``~`` if the home folder is known."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  pathlib raises if it is unknown


SHELL_FOLDER = ContextVar[Path | None]("SHELL_FOLDER", default=None)
"""The shell's working folder, if the project is one of its parents."""


def display_path(path: Path) -> str:
    """Format a path relative to the shell's working folder or the home folder.

    Paths in a project above the shell's folder begin with ``..``. On Windows, where cmd
    does not know ``~``, a path in the home folder is absolute.
    """
    here = SHELL_FOLDER.get() or Path.cwd()
    home = [] if os.name == "nt" else [(Path.home(), "~/")]
    for base, sign in ((here, ""), *home):
        if path.is_relative_to(base) and path != base:
            return f"{sign}{path.relative_to(base)}"
        if base == here and here != Path.cwd() and path.is_relative_to(Path.cwd()):
            return os.path.relpath(path, here)
    return str(path)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a regular file."""
    import hashlib

    digest = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def has_text(path: Path, text: str) -> bool:
    """Return whether a regular file contains exactly this text."""
    with suppress(OSError, ValueError):
        return not islink(path) and read_document(path, path.parent) == text
    return False


def link_or_copy(source: str | Path, destination: str | Path) -> None:
    """Create a hard link or a copy, unless the destination exists.

    A symbolic link is copied as a link.

    Raises:
        OSError: Neither a link nor a copy is possible.
    """
    # A hard link fails for another owner's file, too many links, and some file systems.
    with suppress(OSError, NotImplementedError):
        os.link(source, destination, follow_symlinks=False)
        return
    if not os.path.lexists(destination):
        import shutil  # slow to import

        shutil.copy2(source, destination, follow_symlinks=False)


def write_atomically(
    path: Path,
    text: str,
    folder: Path | None = None,
    *,
    is_private: bool = False,
    is_cached: bool = False,
) -> None:
    """Replace a file's text; see ``open_atomically``."""
    with open_atomically(
        path, folder, is_private=is_private, is_cached=is_cached
    ) as file:
        file.write(text.encode())


@contextmanager
def open_atomically(
    path: Path,
    folder: Path | None = None,
    *,
    is_private: bool = False,
    is_cached: bool = False,
) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces a file at the end of a block.

    The temporary file has the owner and mode of the replaced file from the start.

    Args:
        path: The file.
        folder: The folder of the temporary file. None: the folder of ``path``.
        is_private: Whether only this user may read the file.
        is_cached: Whether the file can be fetched again and needs no fsync.

    Raises:
        InstallationError: The file cannot be written.
    """
    part = (folder or path.parent) / f".{path.name[:40]}.{os.urandom(4).hex()}"
    try:
        with convert_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _create_temporary(part, path, is_private=is_private) as file:
                yield file
                if not is_cached:
                    file.flush()
                    os.fsync(file.fileno())
            move_file(part, path)
    finally:
        with suppress(OSError):
            part.unlink()


def move_file(source: Path, destination: Path) -> None:
    """Move a file atomically, even to another file system.

    Args:
        source: The file. It is copied, not removed, if it is on another file system.
        destination: The new path. An existing file is replaced.

    Raises:
        OSError: The file cannot be moved. The destination is unchanged.
    """
    try:
        retry(os.replace, source, destination)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        import shutil  # slow to import

        part = destination.with_name(f".{destination.name[:40]}.{os.urandom(4).hex()}")
        try:
            shutil.copy2(source, part, follow_symlinks=False)
            retry(part.replace, destination)
        finally:
            with suppress(OSError):
                part.unlink()


def _create_temporary(part: Path, path: Path, *, is_private: bool) -> IO[bytes]:
    """Create a file with the owner and mode of the file that it replaces.

    The file is private at first, so that other users cannot read a token in it even if
    the file system refuses a chmod.
    """
    replaced = None
    with suppress(OSError):
        replaced = path.lstat()
    if replaced and not stat.S_ISREG(replaced.st_mode):
        replaced = None
    # Do not write to another user's file or through a link.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    mode = 0o600 if is_private or replaced else 0o666
    file = os.fdopen(os.open(part, flags, mode), "wb")
    if replaced and os.name == "posix":
        with suppress(OSError):  # only root can change an owner
            os.fchown(file.fileno(), replaced.st_uid, replaced.st_gid)
        if not is_private:
            with suppress(OSError):
                os.fchmod(file.fileno(), stat.S_IMODE(replaced.st_mode))
    return file


def write_in_place(path: Path, text: str) -> None:
    """Replace a file that the user specified, or the target of a link.

    A pipe or /dev/stdout is opened for writing, and is not replaced.

    Raises:
        InstallationError: The file cannot be written.
    """
    if _is_in_kernel_filesystem(path.absolute()) or (exists(path) and not isfile(path)):
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
        return
    write_atomically(real_path(path), text)


@contextmanager
def convert_write_errors(path: Path) -> Iterator[None]:
    """Convert an OSError during a write to an InstallationError."""
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}"
        hint = make_diagnostic_hint(path.parent, error)
        raise InstallationError("not-writable", message, hint=hint) from error


def make_diagnostic_hint(path: Path, error: object) -> Hint | None:
    """Return a command line that checks permissions and space.

    On Windows, the usual cause of denied access is a program that has the file open.
    """
    if os.name == "nt":
        return CLOSE_PROGRAMS if isinstance(error, PermissionError) else None
    # A failed change removes its own folders before the user runs these commands.
    for place in (path, *path.parents):
        if os.path.lexists(place) and ".gpuinstall" not in str(place):
            break
    staying = quote_word(place)
    return make_shell_line(f"ls -ld {staying}; df -h {staying}; df -i {staying}")


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed, unless another process did.

    Raises:
        OSError: The file system has no locks.
    """
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def make_private_folder(folder: Path) -> None:
    """Create a folder and its parents for this user only.

    Raises:
        InstallationError: The folder cannot be created.
    """
    with convert_write_errors(folder):
        for path in (*reversed(folder.parents), folder):
            if not isdir(path):
                path.mkdir(mode=0o700, exist_ok=True)


def own_cache_folder() -> Path:
    """Return gpuinstall's cache folder for this user."""
    # Importing platformdirs takes a twentieth of the run time of plan.
    if sys.platform == "linux":
        return xdg_folder("XDG_CACHE_HOME", ".cache") / "gpuinstall"
    from platformdirs import user_cache_path

    return user_cache_path("gpuinstall", appauthor=False)


def xdg_folder(variable: str, default: str) -> Path:
    """Return an XDG base folder of the user.

    As the XDG specification requires, relative paths are ignored.

    Args:
        variable: The variable, such as ``XDG_CACHE_HOME``.
        default: The path in the home folder, used if the variable is not set.
    """
    folder = Path(os.environ.get(variable, "").strip())
    return folder if folder.is_absolute() else Path.home() / default
