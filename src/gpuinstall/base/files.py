"""Files in folders that a stranger may have filled.

Only regular files are read, and none that a link puts outside the folder it was looked for in; nothing is written
through a link; what is removed is the link and not what it leads to. A reader sees an old file or a new one, never a
part.
"""

from __future__ import annotations

import codecs
import errno
import os
import reprlib
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import repeat
from os.path import exists, isdir, isfile, islink
from pathlib import Path
from typing import IO, Any

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.owners import exposures, has_same_owner, is_shared
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quoted

DOCUMENT_BYTES = 10_000_000
MOST_ENTRIES = 10_000
"""The most entries of a list and lines of a requirements file."""
"""What a document may be long: the largest locks have a tenth of it."""

_VALUES = 2_000_000
"""The values of a JSON document: a package of 100,000 files has 1,600,000."""
_WIDEST = 100_000_000
"""The bytes in memory of its text."""
_USUAL_UMASK = ContextVar[int | None]("_USUAL_UMASK", default=None)
# Between the look at a file and its opening another may have put a pipe or a terminal in its place.
_AT_ONCE = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)


def open_regular(path: Path | str) -> IO[bytes]:
    """Open a regular file to be read; raise OSError at once for one on which a reader may wait for ever, such as a pipe."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  a Path is made slower than it is looked at
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(os.open(path, _AT_ONCE), "rb")


_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
#: Below /dev, and yet a folder of memory with files as on a disk.
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  nothing is written there


def check_outside(path: Path, file: Path, place: str) -> None:
    """Check that a path outside a project belongs to the same owner.

    Args:
        path: The path, which may lead through links.
        file: The file of the project that contains it, whose owner counts.
        place: The file with the line or the key, for the message.

    Raises:
        UsageError: It is another user's, the kernel's, or neither a file nor a folder.
    """
    target = real_path(path)
    why = None
    try:
        status = target.stat()
        is_of_owner = has_same_owner(target, file)
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    else:
        # /proc/self/environ is a regular file of this user, too.
        if _is_of_kernel(target):
            fault = "is no file of a project"
        elif not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            fault = "is not a regular file or a folder"
        elif not is_of_owner:
            fault = "belongs to another user"
            why = "paths outside the folder may lead only to files of the same user"
        else:
            return
    message = f"{place}: {path} {fault}"
    raise UsageError("path-outside", message, why=why)


def _is_of_kernel(path: Path) -> bool:
    """Whether what an absolute path names is no file of a user's, whatever it looks like."""
    return not path.is_relative_to(_SHARED_MEMORY) and any(
        path.is_relative_to(folder) for folder in _KERNEL_FOLDERS
    )


def real_path(path: Path | str) -> Path:
    """Return where a path leads through links; ``Path.resolve`` raises RuntimeError for a link to itself."""
    return Path(os.path.realpath(path))


def read_document(path: Path | str, folder: Path | None = None) -> str:
    """Return the text of a file.

    Args:
        path: The file.
        folder: The folder out of which no link may lead; None: any may.

    Raises:
        OSError: It is not a regular file, too large, or led out of ``folder`` by a link.
        UnicodeDecodeError: It is not text.
    """
    return decoded(read_raw(path, folder))


def decoded(raw: bytes, errors: str = "strict") -> str:
    """Return the text of a document; raise UnicodeDecodeError if it is none.

    Args:
        raw: In UTF-8, or in what the mark at its beginning tells: ``>`` of PowerShell 5 writes UTF-16.
        errors: What becomes of bytes that are no text, as ``bytes.decode`` has it.
    """
    has_mark = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = raw.decode("utf-16" if has_mark else "utf-8", errors)
    # Editors of Windows begin UTF-8 with a mark as well, which is no part of its first word.
    return text.removeprefix("\ufeff")


def read_raw(path: Path | str, folder: Path | None = None) -> bytes:
    """Return the bytes of a file; arguments and OSError as ``read_document`` has them."""
    if folder is not None and not real_path(path).is_relative_to(real_path(folder)):
        raise OSError(errno.ELOOP, f"a link points outside {folder}", str(path))
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        # Not more than there is: room for the largest document takes longer to make than most take to read.
        raw = file.read(min(size, DOCUMENT_BYTES) + 1)
        if len(raw) > size:
            # It has grown since.
            raw += file.read(DOCUMENT_BYTES)
    if len(raw) > DOCUMENT_BYTES:
        raise OSError(
            errno.EFBIG,
            f"it is larger than {DOCUMENT_BYTES // 1_000_000} MB",
            str(path),
        )
    return raw


def hint_for_link(error: Exception) -> str | None:
    """Return how to request what a link leads to out of its folder; None if the error is another, or that is no file."""
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        target = real_path(error.filename)
        if isfile(target):
            return f"rm {quoted(error.filename)} && gpuinstall lock -r {quoted(target)}"
    return None


def read_json(path: Path | str, folder: Path | None = None) -> Any:
    """Read a JSON document as ``read_document`` does; raise ValueError if it is none."""
    return parse_json(read_document(path, folder))


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError if it is malformed, or deeper or of more values than anybody would write."""
    import json

    text = text if isinstance(text, str) else decoded(text)
    # A value takes a hundred times the bytes of its text, and one wide character four bytes for each.
    if sum(map(text.count, ",{[")) > _VALUES or sys.getsizeof(text) > _WIDEST:
        raise ValueError("it has too many values")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise ValueError if it is malformed, or nested deeper than anybody would."""
    if not text:
        return {}
    import tomli

    try:
        document = tomli.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
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
    """Raise ValueError for more entries than any project has."""
    if count > MOST_ENTRIES:
        message = f"{place} has {count} {things}; at most {MOST_ENTRIES} are read"
        raise ValueError(message)


def text_list(value: object, key: str) -> list[str]:
    """Return a list of strings; raise ValueError for any other value.

    Args:
        value: The value. A single text would be read letter by letter.
        key: For messages.
    """
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value
    raise ValueError(f"{key} = {reprlib.repr(value)} is not a list of strings")


def parse_ini(text: str) -> dict[str, dict[str, str]]:
    """Return the settings of a file by their sections; raise ValueError, without its text, if it is malformed."""
    import configparser

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error as error:
        # Only one of a setting's own has a list of lines.
        lines = getattr(error, "errors", None) or [(getattr(error, "lineno", "?"),)]
        raise ValueError(
            f"line {lines[0][0]} is malformed, or repeats another"
        ) from None
    return {name: dict(parser[name]) for name in parser.sections()}


def keep_temporary_files_apart() -> None:
    """Have this process and what it starts make temporary files in our cache if other users could exchange them."""
    folder = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108  looked at, not written to
    # Without a home folder, the command itself reports a RuntimeError.
    with suppress(OSError, RuntimeError, InstallationError):
        if is_shared(folder):
            own = own_cache_folder() / "temporary"
            make_private_folder(own)
            os.environ["TMPDIR"] = str(own)


def close_umask() -> None:
    """Let nobody else write to the files that this process makes, nor to those of the programs that it starts.

    Such a cache or environment would be refused by the next run. ``restore_umask`` is for the
    user's own program.
    """
    # It can only be read by setting another.
    usual = os.umask(0o077)
    os.umask(usual | stat.S_IWOTH)
    _USUAL_UMASK.set(usual)


def restore_umask() -> None:
    """Set the umask that the user had."""
    usual = _USUAL_UMASK.get()
    if usual is not None:
        os.umask(usual)


def check_cache(folder: Path, reporter: Reporter) -> None:
    """Create a cache, and warn if another user can change it.

    Args:
        folder: The cache.
        reporter: Receives the warning.

    Raises:
        InstallationError: On a machine with other users, everyone could change what root installs from it.
    """
    with suppress(InstallationError):  # who needs it says that it cannot be made
        make_private_folder(folder)
    exposed = list(exposures(folder.absolute()))
    effect = f"can change what is installed from the cache {folder}"
    for one in exposed:
        if one.is_refused:
            raise InstallationError(
                "unsafe-cache",
                f"{one.reason}, and so {effect}",
                hint=f"chmod o-w {quoted(one.part)}   # or use another cache: XDG_CACHE_HOME, UV_CACHE_DIR",
            )
    if exposed:
        reporter.warn(f"{exposed[-1].reason}: other users {effect}")


def expanded_home(path: str) -> Path:
    """Return a path with the home folder for ``~``; as it is for a user whom the system does not know."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  pathlib's fails for such a user


def display_path(path: Path) -> str:
    """Write a path from the working folder or the home folder, if it lies below one of them."""
    for base, sign in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base) and path != base:
            return f"{sign}{path.relative_to(base)}"
    return str(path)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a regular file."""
    import hashlib

    digest = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def holds_text(path: Path, text: str) -> bool:
    """Whether a regular file lies there, in the folder itself, that holds just this text."""
    with suppress(OSError, ValueError):
        return not islink(path) and read_document(path) == text
    return False


def link_or_copy(source: str | Path, destination: str | Path) -> None:
    """Give a file a second name, or copy it; a link is copied as one, and what has the name already stays.

    Args:
        source: The file.
        destination: Its second name, in a folder that is there.

    Raises:
        OSError: It can be neither linked nor copied.
    """
    # Another owner's file, a file system without links, or too many links to this one.
    with suppress(OSError, NotImplementedError):
        os.link(source, destination, follow_symlinks=False)
        return
    if not os.path.lexists(destination):
        import shutil  # which a plan does without

        shutil.copy2(source, destination, follow_symlinks=False)


def write_atomically(
    path: Path,
    text: str,
    folder: Path | None = None,
    *,
    is_private: bool = False,
    is_cached: bool = False,
) -> None:
    """Write a text beside ``path``, or in ``folder``, and rename it; arguments and errors as ``written`` has them."""
    with written(path, folder, is_private=is_private, is_cached=is_cached) as file:
        file.write(text.encode())


@contextmanager
def written(
    path: Path,
    folder: Path | None = None,
    *,
    is_private: bool = False,
    is_cached: bool = False,
) -> Iterator[IO[bytes]]:
    """Write a file beside ``path`` that takes its place at the end, if nothing went wrong.

    From its first byte it has the owner and the mode of the file that it replaces.

    Args:
        path: the file that is written.
        folder: where it lies until it is complete, on the same file system; beside ``path`` without it.
        is_private: only this user can read it.
        is_cached: it can be had again, so that nobody waits until the disk has it.

    Yields:
        The file, to be written.

    Raises:
        InstallationError: it cannot be written.
    """
    import secrets

    part = (folder or path.parent) / f".{path.name[:40]}.{secrets.token_hex(4)}"
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _created(part, path, is_private=is_private) as file:
                yield file
                if not is_cached:
                    file.flush()
                    os.fsync(file.fileno())
            part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink()


def _created(
    part: Path,
    path: Path,
    *,
    is_private: bool,
) -> IO[bytes]:
    """Create a file of the owner of the one that it replaces, as open as that; a new one as the umask leaves it.

    A token in the file is not shown to others for a moment, nor for good if a file system refuses a chmod.

    Args:
        part: The file.
        path: The one that it is to replace, if that is there.
        is_private: Whether only this user may read it.
    """
    replaced = None
    with suppress(OSError):
        replaced = path.lstat()
    if replaced and not stat.S_ISREG(replaced.st_mode):
        replaced = None
    # Never into what another has put there under this name, nor through a link.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    mode = 0o600 if is_private or replaced else 0o666
    file = os.fdopen(os.open(part, flags, mode), "wb")
    if replaced and os.name == "posix":
        with suppress(OSError):  # only root can give a file away
            os.fchown(file.fileno(), replaced.st_uid, replaced.st_gid)
        if not is_private:
            with suppress(OSError):
                os.fchmod(file.fileno(), stat.S_IMODE(replaced.st_mode))
    return file


def write_in_place(path: Path, text: str) -> None:
    """Write a file that the user names, behind a link if there is one; a pipe or /dev/stdout is not replaced.

    Args:
        path: The file.
        text: All that it is to hold; to a pipe it is added.

    Raises:
        InstallationError: It cannot be written.
    """
    if _is_of_kernel(path.absolute()) or (exists(path) and not isfile(path)):
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
        return
    write_atomically(real_path(path), text)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Write something; say of what the system refuses that ``path`` cannot be written, and why.

    Args:
        path: What is written.

    Raises:
        InstallationError: it cannot be; on Windows often because a program uses it.
    """
    try:
        yield
    except OSError as error:
        hint = look_at(path.parent)
        if os.name == "nt":
            hint = (
                "Run it again once nothing there is in use"
                if isinstance(error, PermissionError)
                else ""
            )
        message = f"{path} cannot be written: {error.strerror}"
        raise InstallationError("not-writable", message, hint=hint or None) from error


def look_at(path: Path) -> str:
    """Return the commands that show the rights and the room of a path, or of the nearest folder that stays there."""
    # What a failed change has made is gone when they are pasted.
    for place in (path, *path.parents):
        if os.path.lexists(place) and ".gpuinstall" not in str(place):
            break
    staying = quoted(place)
    return f"ls -ld {staying}; df -h {staying}"


def make_private_folder(folder: Path) -> None:
    """Make a folder that only this user can change, whatever the umask, with those above it.

    Raise InstallationError if it cannot be made.
    """
    with writing(folder):
        for path in (*reversed(folder.parents), folder):
            if not isdir(path):
                path.mkdir(mode=0o700, exist_ok=True)


def own_cache_folder() -> Path:
    """The user's folder for what can be had again.

    On Linux it is found without platformdirs, which takes a twentieth of a plan's time to import.
    """
    if sys.platform == "linux":
        return (
            Path(os.environ.get("XDG_CACHE_HOME", "").strip() or Path.home() / ".cache")
            / "gpuinstall"
        )
    from platformdirs import user_cache_path

    return user_cache_path("gpuinstall", appauthor=False)
