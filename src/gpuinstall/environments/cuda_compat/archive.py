"""The libraries in a tar or a folder of cuda-compat.

They are independent of the distribution, so that any of them serves any Linux. Nothing else of an archive is unpacked,
and no path in it counts: each library lands in one folder under its own name.
"""

from __future__ import annotations

import lzma
import os
import re
import tarfile
import zlib
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import unwritable
from gpuinstall.base.shell import quoted
from gpuinstall.base.versions import DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBCUDA = "libcuda.so.1"
_MOST_BYTES = 2 << 30
"""What an archive may unpack to: that of CUDA 13.3 has some 300 MB of libraries in 101 MB."""
_LIBRARY = re.compile(r"lib(?:cuda|cudadebugger|nvidia-[a-z]+)\.so(?:\.[0-9]+)*")
_DAMAGES = (EOFError, OSError, ValueError, lzma.LZMAError, tarfile.TarError, zlib.error)


class ArchiveEntry(NamedTuple):
    """A file or a link in an archive."""

    name: str
    content: IO[bytes] | None
    """None for a link."""
    link: str = ""
    """What a link leads to."""


def unpack_libraries(archive: Path, folder: Path) -> None:
    """Write the libraries of an archive, or of a folder, into a folder.

    Args:
        archive: A tar or a folder.
        folder: The new place of the libraries.

    Raises:
        InstallationError: It is damaged, is no tar, or has no libcuda.
    """
    entries = _entries_of_folder(archive) if archive.is_dir() else _entries_of_tar(archive)
    remaining = _MOST_BYTES
    try:
        for entry in entries:
            name = PurePosixPath(entry.name).name
            if not _LIBRARY.fullmatch(name) or os.path.lexists(folder / name):
                continue
            if entry.content is None:
                _link(folder / name, entry.link)
            else:
                remaining -= _copy(entry.content, folder / name, remaining)
    except _DAMAGES as error:
        raise _damaged(archive, str(error) or type(error).__name__) from None
    if not (folder / LIBCUDA).is_file():
        raise _damaged(archive, f"it has no {LIBCUDA}")


def _link(path: Path, target: str) -> None:
    """Make a link to another library of the folder; one that leads elsewhere is none."""
    name = PurePosixPath(target).name
    if _LIBRARY.fullmatch(name) and name != path.name:
        path.symlink_to(name)


def _copy(content: IO[bytes], path: Path, most: int) -> int:
    """Write a library; return its bytes.

    Raises:
        ValueError: It has more than ``most``.
        InstallationError: It cannot be written.
    """
    count = 0
    while chunk := content.read(1 << 20):
        count += len(chunk)
        if count > most:
            raise ValueError(f"it unpacks to more than {_MOST_BYTES >> 30} GiB")
        try:
            with path.open("ab") as file:
                file.write(chunk)
        except OSError as error:
            raise unwritable(path, error) from None
    return count


def _damaged(archive: Path, reason: str) -> InstallationError:
    hint = "Download it again, or give another: --cuda-compat-from PATH"
    if archive.suffix == ".deb":
        unpack = f"dpkg-deb -x {quoted(archive.name)} cuda-compat"
        hint = f"{unpack}   # in its folder\nRun it again with --cuda-compat-from cuda-compat"
    return InstallationError(
        "cuda-compat-archive",
        f"{archive.name} is no complete tar of cuda-compat: {reason}",
        hint=hint,
    )


def library_version(folder: Path) -> DriverVersion | None:
    """Return the driver release that an unpacked libcuda is of: the file's name has it."""
    name = (folder / LIBCUDA).resolve().name
    with suppress(ValueError):
        return DriverVersion.parse(name.removeprefix("libcuda.so."))
    return None


def _entries_of_folder(folder: Path) -> Iterator[ArchiveEntry]:
    """Yield the libraries of the first folder, from the top, that has a libcuda."""
    for top, folders, names in os.walk(folder):
        folders.sort()
        if LIBCUDA not in names:
            continue
        for name in sorted(names):
            path = Path(top, name)
            if path.is_symlink():
                yield ArchiveEntry(name, None, str(path.readlink()))
            elif path.is_file():
                with path.open("rb") as content:
                    yield ArchiveEntry(name, content)
        return


def _entries_of_tar(archive: Path) -> Iterator[ArchiveEntry]:
    try:
        file = archive.open("rb")
    except OSError as error:
        raise InstallationError(
            "cuda-compat-archive",
            f"{archive} cannot be read: {error.strerror}",
            hint="Check the path",
        ) from None
    with file, tarfile.open(fileobj=file, mode="r|*") as tar:
        for member in tar:
            if member.isfile():
                yield ArchiveEntry(member.name, tar.extractfile(member))
            elif member.issym():
                yield ArchiveEntry(member.name, None, member.linkname)
