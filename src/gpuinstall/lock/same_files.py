"""Which packages of a lock write the same files: what is installed last is what is imported."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.catalog import Wheel
    from gpuinstall.wheels.wheel_reader import WheelReader

    Contents = Mapping[str, tuple[int, int]]
    """By path: the checksum and the size of what is installed there."""

_FOLDERS = re.compile(r"[^/]+\.data/(purelib|platlib)/")
"""Their files are installed beside the others."""
_OWN = re.compile(r"[^/]+\.(dist-info|data)/")
_COMMON_WORD = 6
"""A word that so many names of a lock have says nothing of what is in them: ``nvidia``, ``cu12``."""
_AT_ONCE = 8


class SameFiles(NamedTuple):
    """Two packages that write the same files with different contents."""

    packages: tuple[str, str]
    """With their versions."""
    files: int
    """Of how many files only one is there."""
    example: str

    def __str__(self) -> str:
        names = " and ".join(self.packages)
        count = f"{self.files} files" if self.files > 1 else "a file"
        return f"{names} both write {count} ({self.example}): the one that is installed last overwrites the other's"


def same_files(
    wheels: Sequence[Wheel], open_wheel: Callable[[Wheel], WheelReader]
) -> list[SameFiles]:
    """Return the pairs of wheels of which one overwrites most of the other.

    The directories of those alone are read whose names have a word in common, some 64 kB of each.

    Args:
        wheels: Those of one lock.
        open_wheel: Reads the directory of a wheel.
    """
    pairs = list(_alike(wheels))
    alike = list(dict.fromkeys(wheel for pair in pairs for wheel in pair))

    def contents_of(wheel: Wheel) -> Contents:
        # What cannot be read is nothing that could be said of it.
        with suppress(InstallationError):
            return _contents(open_wheel(wheel))
        return {}

    contents = dict(zip(alike, side_by_side(contents_of, alike, _AT_ONCE), strict=True))
    found = []
    for first, second in pairs:
        common = contents[first].keys() & contents[second].keys()
        different = [path for path in common if contents[first][path] != contents[second][path]]
        smaller = min(len(contents[first]), len(contents[second]))
        # Many packages have a stray tests/__init__.py in common.
        if different and 2 * len(common) >= smaller:
            names = (f"{first.package} {first.version}", f"{second.package} {second.version}")
            found.append(SameFiles(names, len(different), min(different, key=_example_key)))
    return found


def _alike(wheels: Iterable[Wheel]) -> Iterator[tuple[Wheel, Wheel]]:
    """Yield the pairs whose names have a word in common that is not in many of them."""
    words = {wheel: set(wheel.package.split("-")) for wheel in wheels}
    counts = Counter(word for own in words.values() for word in own)
    for first, second in combinations(words, 2):
        # A lock has several wheels of one package if they are for several machines.
        if first.package == second.package:
            continue
        if any(counts[word] < _COMMON_WORD for word in words[first] & words[second]):
            yield first, second


def _contents(wheel: WheelReader) -> Contents:
    contents = {}
    for name, member in wheel.members.items():
        path = _FOLDERS.sub("", name)
        if not path.endswith("/") and not _OWN.match(path):
            contents[path] = (member.CRC, member.file_size)
    return contents


def _example_key(path: str) -> tuple[bool, int, str]:
    is_code = path.endswith((".so", ".py", ".dll", ".pyd"))
    return not is_code, path.count("/"), path
