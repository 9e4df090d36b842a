"""The libraries in a tar or a folder of cuda-compat.

They are independent of the distribution, so that any of them serves any Linux. Nothing else of an archive is unpacked,
and no path in it counts: each library lands in one folder under its own name.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import tarfile
import zlib
from contextlib import suppress
from pathlib import Path, PurePosixPath

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import unwritable
from gpuinstall.base.shell import quoted
from gpuinstall.base.versions import DriverVersion

LIBCUDA = "libcuda.so.1"
_MOST_BYTES = 2 << 30
"""What an archive may unpack to: that of CUDA 13.3 has some 300 MB of libraries in 101 MB."""
_LIBRARY = re.compile(r"lib(?:cuda|cudadebugger|nvidia-[a-z]+)\.so(?:\.[0-9]+)*")
_DAMAGES = (EOFError, ValueError, lzma.LZMAError, tarfile.TarError, zlib.error)


def unpack_libraries(archive: Path, folder: Path) -> None:
    """Write the libraries of an archive, or of a folder, into a folder.

    Args:
        archive: A tar or a folder.
        folder: The new place of the libraries.

    Raises:
        InstallationError: It is damaged, is no tar, or has no libcuda; or they cannot be written.
    """
    try:
        if archive.is_dir():
            _copy_libraries(archive, folder)
        else:
            _extract_libraries(archive, folder)
    except _DAMAGES as error:
        raise _damaged(archive, str(error) or type(error).__name__) from None
    except OSError as error:
        raise unwritable(folder, error) from None
    if not (folder / LIBCUDA).is_file():
        raise _damaged(archive, f"it has no {LIBCUDA}")


def _copy_libraries(source: Path, folder: Path) -> None:
    """Copy those of the first folder, from the top, that has a libcuda."""
    found = min(source.rglob(LIBCUDA), key=lambda path: len(path.parts), default=None)
    if found is None:
        return
    for path in found.parent.iterdir():
        if not _LIBRARY.fullmatch(path.name):
            continue
        if path.is_symlink():
            _link(folder / path.name, str(path.readlink()))
        elif path.is_file():
            shutil.copyfile(path, folder / path.name)


def _extract_libraries(archive: Path, folder: Path) -> None:
    unpacked = 0
    with archive.open("rb") as file, tarfile.open(fileobj=file, mode="r|*") as tar:
        for member in tar:
            # What is skipped is unpacked too: a megabyte can hold a terabyte of zeros.
            unpacked += member.size
            if unpacked > _MOST_BYTES:
                raise ValueError(f"it unpacks to more than {_MOST_BYTES >> 30} GiB")
            path = folder / PurePosixPath(member.name).name
            if not _LIBRARY.fullmatch(path.name) or os.path.lexists(path):
                continue
            if member.issym():
                _link(path, member.linkname)
            content = tar.extractfile(member) if member.isfile() else None
            if content:
                path.write_bytes(content.read())


def _link(path: Path, target: str) -> None:
    """Make a link to another library of the folder; one that leads elsewhere is none."""
    name = PurePosixPath(target).name
    if _LIBRARY.fullmatch(name) and name != path.name:
        path.symlink_to(name)


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
