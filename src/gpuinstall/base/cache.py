"""Cache of typed values, which ignores errors of the file system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import json

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import read_raw, write_atomically
from gpuinstall.base.values import Value

_Cached = TypeVar("_Cached", bound=Value)


class JsonCache(Value, Generic[_Cached]):
    """Cache with a JSON file for each value."""

    folder: Path
    kind: type[_Cached]

    def get(self, key: str) -> _Cached | None:
        """Return the value that a previous run cached, or None."""
        return self._read(self._file(key))

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
        with suppress(OSError, ValueError, RecursionError):
            return json.decode(read_raw(file), type=self.kind)
        return None

    def _file(self, key: str) -> Path:
        import hashlib  # slow to import

        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
