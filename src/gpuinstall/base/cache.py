"""Cache of typed values, which ignores errors of the file system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from time import time
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from msgspec import json

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import read_raw, write_atomically
from gpuinstall.base.values import Value

_Cached = TypeVar("_Cached", bound=Value)
_LOCK = Lock()

FORGET_S = 300
"""Seconds in which no optional page of an unreachable host is requested."""


class HostCache(Value):
    """Hosts that could not be reached, for the next commands."""

    folder: Path

    def add(self, host: str) -> None:
        """Add a host."""
        with suppress(InstallationError):
            write_atomically(self._file(host), "", is_cached=True)

    def has(self, host: str) -> bool:
        """Return whether a host was added in the last five minutes."""
        with suppress(OSError):
            age = time() - self._file(host).stat().st_mtime
            return bool(host) and age <= FORGET_S
        return False

    def _file(self, host: str) -> Path:
        return self.folder / quote(host, safe="")


class JsonCache(Value, Generic[_Cached]):
    """Cache with a JSON file for each value."""

    folder: Path
    kind: type[_Cached]

    def get(self, key: str, max_age: float | None = None) -> _Cached | None:
        """Return the value that a previous run cached, or None.

        Args:
            key: The key of the value.
            max_age: The seconds after which a value is not returned. None: unlimited.
        """
        file = self._file(key)
        if max_age is not None:
            with suppress(OSError):
                if time() - file.stat().st_mtime <= max_age:
                    return self._read(file)
            return None
        return self._read(file)

    def touch(self, key: str) -> None:
        """Mark a cached value as new."""
        with suppress(OSError):
            os.utime(self._file(key))

    def put(self, key: str, value: _Cached) -> None:
        """Cache a value for later runs."""
        # A page can contain characters that UTF-8 cannot encode.
        with suppress(InstallationError, UnicodeEncodeError):
            text = json.encode(value).decode()
            write_atomically(self._file(key), text, is_cached=True)

    def values(self) -> Iterator[_Cached]:
        """Yield all cached values."""
        with suppress(OSError):
            for file in sorted(self.folder.glob("*.json")):
                value = self._read(file)
                if value is not None:
                    yield value

    def _read(self, file: Path) -> _Cached | None:
        # msgspec crashes if several threads read a class for the first time.
        with _LOCK:
            decoder = _create_decoder(self.kind)
        with suppress(OSError, ValueError, RecursionError):
            value: _Cached = decoder.decode(read_raw(file, None))
            return value
        return None

    def _file(self, key: str) -> Path:
        import hashlib  # slow to import

        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


@cache
def _create_decoder(kind: type[Value]) -> json.Decoder[Any]:
    return json.Decoder(kind)
