"""The libraries in an archive of cuda-compat: NVIDIA's tar, a deb, an rpm, conda's archive, or a folder.

They are independent of the distribution, so that any of them serves any Linux. Nothing else of an archive is unpacked,
and no path in it counts: each library lands in one folder under its own name.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from contextlib import suppress
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple, cast

from gpuinstall.errors import InstallationError
from gpuinstall.files import unwritable
from gpuinstall.shell import quoted
from gpuinstall.versions import DriverVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIBCUDA = "libcuda.so.1"
_MOST_BYTES = 2 << 30
"""What an archive may unpack to: that of CUDA 13.3 has some 300 MB of libraries in 101 MB."""
_LIBRARY = re.compile(r"lib(?:cuda|cudadebugger|nvidia-[a-z]+)\.so(?:\.[0-9]+)*")
_DAMAGES = (
    EOFError,
    OSError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)

_DEB = b"!<arch>\n"
_DEB_HEADER = 60
_RPM = b"\xed\xab\xee\xdb"
_RPM_LEAD = 96
_RPM_HEADER = b"\x8e\xad\xe8\x01"
_ZIP = b"PK\x03\x04"
_ZSTD = b"\x28\xb5\x2f\xfd"
_CPIO = b"070701"
_CPIO_HEADER = 110
_LINK = 0o120000
_FILE = 0o100000
_KIND = 0o170000


class _ZstdError(Exception):
    """What zstd has compressed cannot be read by this Python."""


class ArchiveEntry(NamedTuple):
    """A file or a link in an archive."""

    name: str
    content: IO[bytes] | None
    """None for a link."""
    link: str = ""
    """What a link leads to."""


def unpack_libraries(archive: Path, folder: Path, *, address: str = "") -> None:
    """Write the libraries of an archive, or of a folder, into a folder.

    Args:
        archive: A file or a folder.
        folder: The new place of the libraries.
        address: Where the archive was downloaded from: the user has no file of it.

    Raises:
        InstallationError: It is damaged, has no libcuda, or its compression is not known here.
    """
    entries = _entries_of_folder(archive) if archive.is_dir() else _entries_of_file(archive)
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
    except _ZstdError:
        raise _unreadable(archive, address) from None
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
    return InstallationError(
        "cuda-compat-archive",
        f"{archive.name} is not a complete archive of cuda-compat: {reason}",
        hint="Download it again, or give another: --cuda-compat-from PATH",
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


def _entries_of_file(archive: Path) -> Iterator[ArchiveEntry]:
    """Yield what is in an archive, whose kind its first bytes tell."""
    try:
        file = archive.open("rb")
    except OSError as error:
        raise InstallationError(
            "cuda-compat-archive",
            f"{archive} cannot be read: {error.strerror}",
            hint="Check the path",
        ) from None
    with file:
        start = file.read(8)
        file.seek(0)
        if start == _DEB:
            yield from _entries_of_deb(file)
        elif start.startswith(_RPM):
            yield from _entries_of_rpm(file)
        elif start.startswith(_ZIP):
            yield from _entries_of_conda(file)
        else:
            yield from _entries_of_tar(_decompressed(file))


def _entries_of_tar(file: IO[bytes]) -> Iterator[ArchiveEntry]:
    with tarfile.open(fileobj=file, mode="r|") as tar:
        for member in tar:
            if member.isfile():
                yield ArchiveEntry(member.name, tar.extractfile(member))
            elif member.issym():
                yield ArchiveEntry(member.name, None, member.linkname)


def _entries_of_deb(file: IO[bytes]) -> Iterator[ArchiveEntry]:
    """Yield what is in the tar ``data`` of a deb (deb(5), ar(5)).

    Raises:
        ValueError: It has none.
    """
    file.seek(len(_DEB))
    while len(header := file.read(_DEB_HEADER)) == _DEB_HEADER:
        name = header[:16].decode("ascii").rstrip(" /")
        size = int(header[48:58])
        if name.startswith("data.tar"):
            yield from _entries_of_tar(_decompressed(file))
            return
        # The members begin at even positions.
        file.seek(size + size % 2, os.SEEK_CUR)
    raise ValueError("it has no data.tar")


def _entries_of_rpm(file: IO[bytes]) -> Iterator[ArchiveEntry]:
    """Yield what is in the cpio archive of an rpm: rpm.org, "V4 package format"."""
    file.seek(_RPM_LEAD)
    _skip_rpm_header(file)
    # The signature is padded to eight bytes, the header behind it is not.
    file.seek(-file.tell() % 8, os.SEEK_CUR)
    _skip_rpm_header(file)
    yield from _entries_of_cpio(_decompressed(file))


def _skip_rpm_header(file: IO[bytes]) -> None:
    magic, entries, size = struct.unpack(">4s4xII", file.read(16))
    if magic != _RPM_HEADER:
        raise ValueError("it has no header where one should be")
    file.seek(16 * entries + size, os.SEEK_CUR)


def _entries_of_cpio(file: IO[bytes]) -> Iterator[ArchiveEntry]:
    """Yield what is in a cpio archive of the new portable format: cpio(5)."""
    while True:
        header = _read_exactly(file, _CPIO_HEADER)
        if not header.startswith(_CPIO):
            raise ValueError("it is no cpio archive of the new portable format")
        numbers = [int(header[start : start + 8], 16) for start in range(6, _CPIO_HEADER, 8)]
        mode, size, length = numbers[1], numbers[6], numbers[11]
        name = _read_padded(file, length, before=_CPIO_HEADER).rstrip(b"\0").decode()
        if name == "TRAILER!!!":
            return
        content = _CpioContent(file, size)
        if mode & _KIND == _FILE:
            yield ArchiveEntry(name, cast("IO[bytes]", content))
        elif mode & _KIND == _LINK:
            yield ArchiveEntry(name, None, content.read(size).decode())
        content.skip()


class _CpioContent:
    """One file in a cpio archive, read from the stream that it lies in."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._remaining = size
        self._padding = -size % 4

    def read(self, count: int) -> bytes:
        """Return at most so many of its bytes; none at its end."""
        chunk = _read_exactly(self._file, min(count, self._remaining))
        self._remaining -= len(chunk)
        return chunk

    def skip(self) -> None:
        """Go to the next entry."""
        while self._remaining:
            self.read(1 << 20)
        _read_exactly(self._file, self._padding)


def _read_padded(file: IO[bytes], size: int, *, before: int) -> bytes:
    """Return so many bytes, which with those before them fill up to a multiple of four."""
    content = _read_exactly(file, size)
    _read_exactly(file, -(before + size) % 4)
    return content


def _read_exactly(file: IO[bytes], size: int) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise EOFError("it ends too early")
    return content


def _entries_of_conda(file: IO[bytes]) -> Iterator[ArchiveEntry]:
    """Yield what is in the tar ``pkg-…`` of conda's newer format; the older one is a tar itself."""
    with zipfile.ZipFile(file) as outer:
        for name in outer.namelist():
            if name.startswith("pkg-"):
                with outer.open(name) as member:
                    yield from _entries_of_tar(_decompressed(member))


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    """Return the contents of a stream, whose compression its first bytes tell."""
    place = file.tell()
    start = file.read(6)
    file.seek(place)
    if start.startswith(_ZSTD):
        return _zstd(file)
    openers: dict[bytes, Callable[[IO[bytes]], object]] = {
        b"\xfd7zXZ\0": lzma.open,
        b"\x1f\x8b": gzip.open,
        b"BZh": bz2.open,
    }
    for magic, opened in openers.items():
        if start.startswith(magic):
            return cast("IO[bytes]", opened(file))
    return file


def _zstd(file: IO[bytes]) -> IO[bytes]:
    """Return what zstd has compressed, if this Python can read that: from 3.14 on, or with the package zstandard."""
    with suppress(ImportError):
        return cast("IO[bytes]", import_module("compression.zstd").open(file))
    with suppress(ImportError):
        reader = import_module("zstandard").ZstdDecompressor().stream_reader(file)
        return cast("IO[bytes]", reader)
    raise _ZstdError


def _unreadable(archive: Path, address: str) -> InstallationError:
    """Return the error for an archive that zstd has compressed, with the commands that unpack it."""
    folder = "cuda-compat"
    path = quoted(archive.name if address else archive)
    commands = {
        ".deb": f"dpkg-deb -x {path} {folder}",
        ".rpm": f"mkdir {folder} && rpm2cpio {path} | (cd {folder} && cpio -idm)",
        ".conda": f"mkdir {folder} && unzip -p {path} 'pkg-*' | tar --zstd -xC {folder}",
    }
    other = f"mkdir {folder} && tar --zstd -xf {path} -C {folder}"
    steps = [
        commands.get(archive.suffix, other),
        f"Run it again with --cuda-compat-from {folder}",
    ]
    if address:
        steps.insert(0, f"curl -fLo {path} {quoted(address)}")
    return InstallationError(
        "cuda-compat-zstd",
        f"{archive.name} is compressed with zstd, which this Python cannot read",
        hint="\n".join(steps),
    )
