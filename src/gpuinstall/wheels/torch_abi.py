"""Which torch a library's symbols ask for: those of the stable interface, or of torch's own C++, and who exports them.

``torch_exports.bin`` holds what some builds of torch export, one of each minor release: a line of JSON, then, packed,
the hashes of the names in columns of their four bytes, those of the same builds together. A name that is not in it was
never seen; that one which is missing passes by chance happens once in some 50,000 times. It is made by
``python -m tools.torch_exports``, for Linux on x86_64.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

_ORDINARY = re.compile(
    rb"_Z(?:T[VTISHWC])?(?:GV)?Z?N?[rVK]*[RO]?(?:2at|3c10|5torch|6caffe2)(?!6stable|10headeronly)|(?:_Z\d{1,3})?THP[A-Z]"
)
"""C++ names in torch's namespaces, which stand first in a mangled name, and what its Python module gives."""
_STABLE = re.compile(rb"(?:aoti_torch|torch)_[a-z]")
_DEVICE = b"4cuda"
OF_DEVICE = 1 << 62
"""The bit of a name that only the device's own library exports, which was not read of every build."""
FIRST_STABLE = "2.9"
"""The oldest torch for which its authors promise the stable interface (docs/source/notes/libtorch_stable_abi.md)."""


def ordinary_names(names: Iterable[bytes]) -> set[bytes]:
    """Those of torch's own C++, which change from one minor release to the next."""
    return {name for name in names if _ORDINARY.match(name)}


def stable_names(names: Iterable[bytes]) -> set[bytes]:
    """Those of the stable interface."""
    return {name for name in names if _STABLE.match(name)}


@dataclass(frozen=True)
class Exports:
    """What torch exports, by minor release from the oldest; of ``whole`` ones the device's library was read too."""

    minors: tuple[str, ...]
    whole: frozenset[str]
    masks: Mapping[int, int]

    def missing(self, names: Collection[bytes]) -> dict[str, tuple[str, ...]]:
        """The names that each minor release does not export, sorted."""
        masks = {name: self.masks.get(hashed(name), 0) for name in names}
        return {
            minor: tuple(
                sorted(
                    name.decode()
                    for name, mask in masks.items()
                    if not self._has(number, name, mask)
                )
            )
            for number, minor in enumerate(self.minors)
        }

    def _has(self, number: int, name: bytes, mask: int) -> bool:
        unread = self.minors[number] not in self.whole and (
            mask & OF_DEVICE or (not mask and _DEVICE in name)
        )
        return bool(mask >> number & 1 or unread)

    @classmethod
    def unpack(cls, data: bytes) -> Exports:
        """Read the file."""
        text, _, packed = data.partition(b"\n")
        head, columns = json.loads(text), lzma.decompress(packed)
        count = len(columns) // 4
        hashes = map(
            int.from_bytes,
            zip(*(columns[column * count :][:count] for column in range(4)), strict=True),
        )
        masks = {next(hashes): mask for mask, length in head["groups"] for _ in range(length)}
        return cls(tuple(head["minors"]), frozenset(head["whole"]), masks)


@cache
def load_exports() -> Exports:
    """Load the table as shipped."""
    from pathlib import Path

    return Exports.unpack(Path(__file__).with_name("torch_exports.bin").read_bytes())


def hashed(name: bytes) -> int:
    """What stands for a name in the table."""
    return int.from_bytes(blake2b(name, digest_size=4).digest(), "big")
