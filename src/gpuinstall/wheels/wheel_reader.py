"""Read single files from a wheel, whole or as streams."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from email.message import Message
from email.parser import Parser
from mmap import ACCESS_READ, mmap
from operator import attrgetter
from tempfile import TemporaryFile
from typing import cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipExtFile, ZipFile, ZipInfo

from gpuinstall.base.values import replace
from gpuinstall.wheels.ranges import Limits, Pieces, RangeFile, Ranges, WheelError

_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_PIECE = 64 << 10
_SMALL = 4 << 20
_MAX_KEPT = 128 << 20
"""The maximum bytes of decompressed files to keep in memory."""
_HIGHEST_RATIO = 16
"""The maximum inflation ratio. Libraries inflate at most eightfold."""


def parse_metadata(text: str) -> Message:
    """Parse the headers of METADATA, and skip its description to save time."""
    head, _, description = text.partition("\n\n")
    message = Parser().parsestr(head)
    message.set_payload(description)
    return message


class WheelReader:
    """Reader of a wheel's files. The constructor reads the zip directory."""

    def __init__(self, ranges: Ranges, limits: Limits = Limits()) -> None:  # noqa: B008  frozen
        self._file = RangeFile(ranges, limits)
        self.size = self._file.size
        with _convert_zip_errors("the wheel"):
            self._zip = ZipFile(self._file)
        members = sorted(self._zip.infolist(), key=attrgetter("header_offset"))
        self.members: Mapping[str, ZipInfo] = {
            member.filename: member for member in members
        }
        """The files in the wheel by name, ordered by offset."""
        if len(self.members) < len(members):
            raise WheelError(
                "wheel-malformed",
                "the wheel contains two files with the same name",
            )
        starts = [member.header_offset for member in members]
        # If the first entries of a directory are missing, zipfile treats their files as a prefix.
        if not starts or starts[0]:
            raise WheelError(
                "wheel-malformed",
                "the zip directory of the wheel is incomplete",
            )
        self._kept: dict[str, bytes | mmap] = {}
        # No file extends into the next one, so no byte is inflated twice.
        ends = [*starts[1:], self._zip.start_dir]
        self._ends = dict(zip(self.members, ends, strict=True))

    @property
    def bytes_read(self) -> int:
        """The number of bytes read from the wheel so far."""
        return self._file.bytes_read

    @property
    def bytes_left(self) -> int:
        """The number of bytes that the limit allows to read."""
        return self._file.limits.bytes - self.bytes_read

    def sort_by_size(self, names: Iterable[str]) -> list[str]:
        """Sort the names of files, largest file first."""
        return sorted(names, key=lambda name: (-self.members[name].file_size, name))

    def limit_reads(self, count: int) -> None:
        """Limit further reads from the wheel to ``count`` bytes."""
        limits = self._file.limits
        self._file.limits = replace(limits, bytes=self.bytes_read + count)

    def pause(self) -> None:
        """End the current request. The next read sends another one."""
        self._file.close()

    def metadata(self) -> Message:
        """Parse the wheel's METADATA; raise WheelError if it is not unique."""
        return parse_metadata(self.metadata_text())

    def metadata_text(self) -> str:
        """Read the METADATA file; raise WheelError if it is not unique."""
        names = [name for name in self.members if _METADATA.fullmatch(name)]
        if len(names) != 1:
            raise WheelError(
                "wheel-malformed",
                f"the wheel has {len(names)} METADATA files",
            )
        return self.read(names[0]).decode("utf-8", "replace")

    def read(self, name: str) -> bytes:
        """Read a small file in the wheel; raise WheelError if it is large."""
        size = self.members[name].file_size
        if size > _SMALL:
            raise WheelError(
                "wheel-too-large",
                f"{name} is too large: its declared size is {size} bytes",
            )
        return b"".join(self.stream(name))

    def read_beginning(self, name: str, most: int) -> bytes:
        """Read a file's first ``most`` bytes without verifying a checksum."""
        data = bytearray()
        member = self.members[name]
        end = member.header_offset + most
        stop = min(end, self._ends[name])
        pieces = self._inflate(name, stop)
        # zipfile raises EOFError, because the rest of the compressed data is missing.
        with _convert_zip_errors(name), suppress(EOFError), closing(pieces):
            for piece in pieces:
                data += piece
                if len(data) > most * _HIGHEST_RATIO:
                    break
        return bytes(data)

    def read_whole(self, name: str) -> bytes | mmap:
        """Read a file in the wheel, and cache it in memory or on disk.

        Raises:
            OSError: The disk is full.
        """
        size = self.members[name].file_size
        if sum(map(len, self._kept.values())) + size <= _MAX_KEPT:
            self._kept[name] = b"".join(self.stream(name))
        else:
            with TemporaryFile() as file:
                file.writelines(self.stream(name))
                file.flush()
                self._kept[name] = mmap(file.fileno(), 0, access=ACCESS_READ)
        return self._kept[name]

    def is_cached(self, name: str) -> bool:
        """Return whether a file was read whole and is cached."""
        return name in self._kept

    def stream(self, name: str) -> Pieces:
        """Yield the bytes of a file in the wheel, and verify its checksum."""
        if name in self._kept:
            data = self._kept[name]
            for start in range(0, len(data), _PIECE):
                yield data[start : start + _PIECE]
            return
        pieces = self._inflate(name, self._ends[name])
        with _convert_zip_errors(name), closing(pieces):
            yield from pieces

    def _inflate(self, name: str, stop: int) -> Pieces:
        """Decompress a file; raise EOFError at ``stop``."""
        member = self.members[name]
        if member.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
            raise BadZipFile("unsupported compression")
        # The request for another file ends with that file.
        self._file.close()
        self._file.stop = stop
        with closing(self._file), cast("ZipExtFile", self._zip.open(member)) as data:
            while True:
                # Another file may have been read since the previous piece.
                self._file.stop = stop
                piece = data.read1(_PIECE)
                if not piece:
                    break
                self._file.count_inflated(len(piece))
                yield piece


@contextmanager
def _convert_zip_errors(name: str) -> Iterator[None]:
    """Convert the errors of ``zipfile`` to WheelError."""
    try:
        yield
    except (
        BadZipFile,
        EOFError,
        OSError,
        RuntimeError,  # including NotImplementedError for an unknown compression
        ValueError,
        struct.error,
        zlib.error,
    ) as error:
        message = f"{name} is damaged or not a valid zip file"
        raise WheelError("wheel-malformed", message, why=str(error)) from error
