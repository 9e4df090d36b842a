"""Read parts of a local or remote file within size limits."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from io import SEEK_CUR, SEEK_END, SEEK_SET
from typing import TYPE_CHECKING, Protocol

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.values import Value

if TYPE_CHECKING:
    from pathlib import Path

Pieces = Generator[bytes, None, None]
_PIECE = 256 << 10
TAIL = (64 << 10) + 64
"""The end-of-directory record of a zip file with the longest comment."""
_MAX_AT_ONCE = 8 << 20
"""The largest zip directory: 160,000 short names take 60 MB of memory."""


class WheelError(InstallationError):
    """A wheel that cannot be read.

    The error code is one of these:

    - ``wheel-malformed``: the file is not a valid wheel.
    - ``wheel-too-large``: a limit was reached.
    - ``no-ranges``: the server does not support range requests.
    - ``wrong-range``: the server sent different bytes than requested.
    - ``foreign-redirect``, ``too-slow``, ``http-status``, ``transfer``.
    """


class Ranges(Protocol):
    """A file, local or remote, of which parts can be read."""

    @property
    def size(self) -> int:
        """The size of the file in bytes."""

    def stream(self, start: int, end: int) -> Pieces:
        """Yield a part of the file's bytes. ``close`` ends the transfer."""


class FileRanges:
    """A local file of which parts can be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _convert_os_errors(path):
            self.size = path.stat().st_size

    def stream(self, start: int, end: int) -> Pieces:
        """Yield the bytes of the file from ``start`` to ``end``."""
        with _convert_os_errors(self._path), self._path.open("rb") as file:
            file.seek(start)
            while start < end:
                piece = file.read(min(_PIECE, end - start))
                if not piece:
                    return
                start += len(piece)
                yield piece


@contextmanager
def _convert_os_errors(path: Path) -> Iterator[None]:
    """Raise WheelError for an unreadable local file, such as a broken link."""
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise WheelError("transfer", message) from error


class Limits(Value):
    """Limits on the bytes to read from one wheel."""

    bytes: int = 64 << 20
    """The maximum bytes to read except for GPU code."""
    inflated: int = 3 << 30
    """The maximum number of bytes after decompression."""


class RangeFile:
    """File object for ``zipfile`` that requests the end first, and then parts.

    Raises:
        WheelError: A limit is reached, or the server sends wrong bytes.
    """

    def __init__(self, ranges: Ranges, limits: Limits) -> None:
        self._ranges = ranges
        self.limits = limits
        self.size = ranges.size
        self.bytes_read = 0
        self.bytes_inflated = 0
        self._position = 0
        self._pieces: Pieces | None = None
        self._unread = b""
        self._tail_start = max(0, self.size - TAIL)
        self.stop = self._tail_start
        """The end of the part to read. Later bytes are not requested."""
        self._tail = b"".join(self._request(self._tail_start, self.size))

    def seekable(self) -> bool:
        """Return True, because ``seek`` is supported."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """Change the position, as in ``io.IOBase.seek``."""
        origins = {
            SEEK_SET: 0,
            SEEK_CUR: self._position,
            SEEK_END: self.size,
        }
        position = origins[whence] + offset
        if position < 0:
            raise OSError("negative seek position")
        if position != self._position:
            self.close()
        self._position = position
        return position

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes, or fewer at the end of the part."""
        if size > _MAX_AT_ONCE:
            message = f"the wheel's zip directory is too large ({size} bytes)"
            raise WheelError("wheel-too-large", message)
        data = b""
        while size < 0 or len(data) < size:
            most = size - len(data) if size >= 0 else _MAX_AT_ONCE
            piece = self._read_piece(most)
            if not piece:
                break
            data += piece
            self._position += len(piece)
        return data

    def close(self) -> None:
        """End the current request. Afterwards, another part can be read."""
        if self._pieces:
            self._pieces.close()
        self._pieces = None
        self._unread = b""

    def count_inflated(self, count: int) -> None:
        """Count inflated bytes toward the limit."""
        self.bytes_inflated += count
        self._check_limits()

    def _read_piece(self, most: int) -> bytes:
        """Read at most ``most`` bytes, or none at the end of the part."""
        if self._position >= self._tail_start:
            start = self._position - self._tail_start
            return self._tail[start : start + most]
        if self._pieces is None:
            stop = min(self.stop, self._tail_start)
            self._pieces = self._request(self._position, max(self._position, stop))
        if not self._unread:
            self._unread = next(self._pieces, b"")
        piece = self._unread[:most]
        self._unread = self._unread[most:]
        return piece

    def _request(self, start: int, end: int) -> Pieces:
        """Request and yield exactly the bytes from ``start`` to ``end``."""
        self._check_limits()
        with closing(self._ranges.stream(start, end)) as pieces:
            for piece in pieces:
                self.bytes_read += len(piece)
                self._check_limits()
                start += len(piece)
                if start > end:
                    break
                yield piece
        if start != end:
            raise WheelError(
                "wrong-range", "the server sent more or fewer bytes than requested"
            )

    def _check_limits(self) -> None:
        limits = self.limits
        if self.bytes_read > limits.bytes or self.bytes_inflated > limits.inflated:
            message = "inspecting the wheel would exceed the limit for one wheel"
            read = f"{self.bytes_read} bytes read, {self.bytes_inflated} decompressed"
            raise WheelError("wheel-too-large", message, evidence=read)
