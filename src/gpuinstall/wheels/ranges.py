"""A file of which any part can be read: what every reader here is given, and what it may use of it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gpuinstall.errors import InstallationError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_PIECE = 256 << 10


class WheelError(InstallationError):
    """A wheel that cannot be read.

    ``code`` is ``wheel-malformed`` (not the zip it should be), ``wheel-too-large`` (more of it than may be read),
    ``no-ranges`` (its server gives no parts of files), ``wrong-range`` (it gives others than asked for),
    ``foreign-redirect``, ``too-slow``, ``http-status`` or ``transfer``.
    """


class Ranges(Protocol):
    """The bytes of one file, ``size`` of them."""

    @property
    def size(self) -> int:
        """The size in bytes."""

    def stream(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield the bytes from ``start`` up to ``end`` in pieces; closed early, it reads no further."""


@dataclass(frozen=True)
class FileRanges:
    """A local file."""

    path: Path

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.path.stat().st_size

    def stream(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield the bytes from ``start`` up to ``end`` in pieces."""
        with self.path.open("rb") as file:
            file.seek(start)
            while start < end and (piece := file.read(min(_PIECE, end - start))):
                start += len(piece)
                yield piece


@dataclass(frozen=True)
class Limits:
    """What may be read of one wheel: bytes as they come, bytes once inflated, requests."""

    bytes: int = 96 << 20
    inflated: int = 1 << 30
    requests: int = 48


class MeteredRanges:
    """Counts what is read of a file, and ends where it is more than ``limits`` or other than was asked for.

    ``requests`` begins at one, for the size.
    """

    def __init__(self, ranges: Ranges, limits: Limits) -> None:
        self._ranges = ranges
        self._limits = limits
        self.size = ranges.size
        self.bytes_read, self.bytes_inflated, self.requests = 0, 0, 1

    def stream(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield exactly the bytes from ``start`` up to ``end``."""
        if not 0 <= start <= end <= self.size:
            raise WheelError("wheel-malformed", f"the wheel has {self.size} bytes and says that some lie behind them")
        self.requests += 1
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
            raise WheelError("wrong-range", "the server sent more or fewer bytes than requested")

    def inflate(self, count: int) -> None:
        """Count bytes that were inflated."""
        self.bytes_inflated += count
        self._check()

    def _check(self) -> None:
        limits, used = self._limits, (self.bytes_read, self.bytes_inflated, self.requests)
        allowed = (limits.bytes, limits.inflated, limits.requests)
        if any(count > most for count, most in zip(used, allowed, strict=True)):
            message = "the wheel would need more reading than any real one"
            evidence = "{} bytes, {} inflated, {} requests".format(*used)
            raise WheelError("wheel-too-large", message, evidence=evidence)
