"""A file of which any part can be read: what every reader here is given, and what it may use of it."""

from __future__ import annotations

from contextlib import closing, contextmanager
from io import SEEK_CUR, SEEK_END, SEEK_SET
from typing import TYPE_CHECKING, Protocol

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.values import Value

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    Pieces = Generator[bytes, None, None]

_PIECE = 256 << 10
_TAIL = (64 << 10) + 64
"""How many bytes of the end to read at once: the longest comment of a zip file, and the record that has it."""
_MOST_AT_ONCE = 8 << 20
"""What a directory may have: 160,000 files with short names take 60 MB of memory."""


MOST_OF_A_WHEEL = 96 << 20
"""How many bytes of a wheel to read, unless all its code decides."""


class WheelError(InstallationError):
    """A wheel that cannot be read.

    Its code is one of these:

    - ``wheel-malformed``: it is not the zip that it should be.
    - ``wheel-too-large``: more of it would have to be read than may be.
    - ``no-ranges``: its server gives no parts of files.
    - ``wrong-range``: its server gives others than requested.
    - ``foreign-redirect``, ``too-slow``, ``http-status``, ``transfer``.
    """


class Ranges(Protocol):
    """The bytes of one file."""

    @property
    def size(self) -> int:
        """The size in bytes."""

    def stream(self, start: int, end: int) -> Pieces:
        """Yield the bytes from ``start`` up to ``end`` in pieces; closed early, it reads no further."""


class FileRanges(Value):
    """A local file."""

    path: Path

    @property
    def size(self) -> int:
        """The size in bytes."""
        with _as_wheel_error(self.path):
            return self.path.stat().st_size

    @property
    def etag(self) -> str:
        """When it was changed."""
        with _as_wheel_error(self.path):
            return str(self.path.stat().st_mtime_ns)

    def stream(self, start: int, end: int) -> Pieces:
        """Yield the bytes from ``start`` up to ``end`` in pieces."""
        with _as_wheel_error(self.path), self.path.open("rb") as file:
            file.seek(start)
            while start < end:
                piece = file.read(min(_PIECE, end - start))
                if not piece:
                    return
                start += len(piece)
                yield piece


@contextmanager
def _as_wheel_error(path: Path) -> Iterator[None]:
    """Raise WheelError for a local file that cannot be read, such as a link that leads nowhere."""
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise WheelError("transfer", message) from error


class Limits(Value):
    """How much may be read of one wheel."""

    bytes: int = MOST_OF_A_WHEEL
    """As they come."""
    inflated: int = 1 << 30
    """In bytes."""


class RangeFile:
    """A file as ``zipfile`` reads it: its end once, then parts of it in the order of their bytes.

    Raises:
        WheelError: if more is read than ``limits`` allow, or a server sends other than was requested.
    """

    def __init__(self, ranges: Ranges, limits: Limits) -> None:
        self._ranges = ranges
        self._limits = limits
        self.size = ranges.size
        self.bytes_read = 0
        self.bytes_inflated = 0
        self._position = 0
        self._pieces: Pieces | None = None
        self._unread = b""
        self._tail_start = max(0, self.size - _TAIL)
        self.stop = self._tail_start
        """Where the part ends that is to be read: nothing beyond it is requested."""
        self._tail = b"".join(self._request(self._tail_start, self.size))

    def seekable(self) -> bool:
        """Whether ``seek`` works."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """Go to a position, as the standard library's files do."""
        origins = {
            SEEK_SET: 0,
            SEEK_CUR: self._position,
            SEEK_END: self.size,
        }
        position = origins[whence] + offset
        if position < 0:
            raise OSError("a position before the file")
        if position != self._position:
            self.close()
        self._position = position
        return position

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, or fewer at the end of the part that is to be read."""
        if size > _MOST_AT_ONCE:
            message = f"the wheel says that its directory has {size} bytes"
            raise WheelError("wheel-too-large", message)
        data = b""
        while size < 0 or len(data) < size:
            most = size - len(data) if size >= 0 else _MOST_AT_ONCE
            piece = self._next(most)
            if not piece:
                break
            data += piece
            self._position += len(piece)
        return data

    def close(self) -> None:
        """End the request that is under way; another part may be read afterwards."""
        if self._pieces:
            self._pieces.close()
        self._pieces = None
        self._unread = b""

    def count_inflated(self, count: int) -> None:
        """Count bytes that were inflated."""
        self.bytes_inflated += count
        self._check()

    def _next(self, most: int) -> bytes:
        """Return the next bytes, ``most`` at most; none at the end of the part that is to be read."""
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
        """Yield exactly the bytes from ``start`` up to ``end``."""
        self._check()
        with closing(self._ranges.stream(start, end)) as pieces:
            for piece in pieces:
                self.bytes_read += len(piece)
                self._check()
                start += len(piece)
                if start > end:
                    break
                yield piece
        if start != end:
            raise WheelError(
                "wrong-range", "the server sent more or fewer bytes than requested"
            )

    def _check(self) -> None:
        limits = self._limits
        if self.bytes_read > limits.bytes or self.bytes_inflated > limits.inflated:
            message = "more of the wheel would have to be read than is read of one"
            read = f"{self.bytes_read} bytes, {self.bytes_inflated} inflated"
            raise WheelError("wheel-too-large", message, evidence=read)
