"""Symbols of torch: its stable interface, its C++ names, and their exporters.

``torch_exports.bin`` contains the exports of one build of each minor release: a line of
JSON, then the packed hashes of the names, in columns of their four bytes, grouped by
builds. A missing name is accepted by chance once in 50,000 cases. The file is generated
by ``python -m tools.torch_exports`` for Linux on x86-64.
"""

from __future__ import annotations

import json
import lzma
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from gpuinstall.base.values import Value

_ORDINARY = re.compile(
    rb"_Z(?:T[VTISHWC])?(?:GV)?Z?N?[rVK]*[RO]?"
    rb"(?:2at|3c10|5torch|6caffe2)(?!6stable|10headeronly)"
    rb"|(?:_Z\d{1,3})?THP[A-Z]"
)
"""C++ names in torch's namespaces, and names of its Python module."""
_STABLE = re.compile(rb"(?:aoti_torch|torch)_[a-z]")
_DEVICE = b"4cuda"
_HASH_SIZE = 4
"""In bytes."""
OF_DEVICE = 1 << 62
"""The bit of a name that only the CUDA library exports."""
FIRST_STABLE = "2.9"
"""The oldest torch with the stable interface (libtorch_stable_abi.md)."""


def torch_names(names: Collection[bytes]) -> set[bytes]:
    """Return the names of torch's C++ and of the stable interface."""
    stable = {name for name in names if _STABLE.match(name)}
    return stable | ordinary_names(names)


def ordinary_names(names: Iterable[bytes]) -> set[bytes]:
    """Return the names of torch's C++, which minor releases change."""
    return {name for name in names if _ORDINARY.match(name)}


class Exports(Value):
    """Names that torch exports."""

    minors: tuple[str, ...]
    """The minor releases, from the oldest."""
    whole: frozenset[str]
    """The releases whose CUDA library was read too."""
    masks: Mapping[int, int]
    """By the hash of a name, a bit for each minor release that exports it."""

    def fitting(self, names: Collection[bytes]) -> list[str]:
        """Return the minor releases that export all names."""
        fitting = []
        for number, minor in enumerate(self.minors):
            if all(self._has(number, name) for name in names):
                fitting.append(minor)
        return fitting

    def _has(self, number: int, name: bytes) -> bool:
        mask = self.masks.get(hashed(name), 0)
        if mask >> number & 1:
            return True
        if self.minors[number] in self.whole:
            return False
        # The CUDA library of this release was not read: it may have the name.
        if mask:
            return bool(mask & OF_DEVICE)
        return _DEVICE in name

    @classmethod
    def unpack(cls, data: bytes) -> Exports:
        """Read the file."""
        text, _, packed = data.partition(b"\n")
        head = json.loads(text)
        hashes = _unpack_hashes(packed)
        masks = {}
        for mask, length in head["groups"]:
            group = islice(hashes, length)
            masks.update(dict.fromkeys(group, mask))
        return cls(
            minors=tuple(head["minors"]),
            whole=frozenset(head["whole"]),
            masks=masks,
        )


def _unpack_hashes(packed: bytes) -> Iterator[int]:
    columns = lzma.decompress(packed)
    count = len(columns) // _HASH_SIZE
    words = bytearray(len(columns))
    for column in range(_HASH_SIZE):
        start = column * count
        end = start + count
        words[column::_HASH_SIZE] = columns[start:end]
    return iter(struct.unpack(f">{count}I", words))


@cache
def load_exports() -> Exports:
    """Load the table as shipped."""
    data = Path(__file__).with_name("torch_exports.bin").read_bytes()
    return Exports.unpack(data)


def hashed(name: bytes) -> int:
    """Return the hash of a name in the table."""
    digest = blake2b(name, digest_size=_HASH_SIZE).digest()
    return int.from_bytes(digest, "big")
