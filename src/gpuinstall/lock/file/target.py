"""Lock targets: a backend, an operating system, and an architecture."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import marker_environment
from gpuinstall.base.values import Value
from gpuinstall.base.versions import known_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from packaging.tags import Tag

    from gpuinstall.catalog import Wheel

_FORM = r"(.+?)(?:-(linux|windows|macos)-(x86_64|aarch64|arm64))?"

_UV = {
    ("windows", "x86_64"): "x86_64-pc-windows-msvc",
    ("windows", "arm64"): "aarch64-pc-windows-msvc",
    ("macos", "x86_64"): "x86_64-apple-darwin",
    ("macos", "arm64"): "aarch64-apple-darwin",
}
"""Values of uv's ``--python-platform``; on Linux they contain the glibc."""
_OLD_NAMES = {
    17: "manylinux2014",
    12: "manylinux2010",
    5: "manylinux1",
}
"""Manylinux tags before PEP 600, by the minor version of their glibc."""

MACOS = "14.0"
"""The latest macOS version that a torch wheel requires."""
UV_MACOS = "13.0"
"""The oldest macOS version that uv resolves for."""
GLIBC = "2.28"
"""The glibc that wheels of torch 2.7 and later require (2.6 on aarch64)."""

_UV_GLIBC = (17, 28, *range(31, 41))
"""The minor versions of glibc that uv can resolve for."""


class Target(Value):
    """The backend and platform that a lock file supports."""

    backend: str
    """The backend tag, such as ``cu126``."""
    os: str = "linux"
    arch: str = "x86_64"
    glibc: str = GLIBC
    """The highest glibc version that wheels may require."""
    macos: str = MACOS
    """The highest macOS version that wheels may require."""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse a name such as ``cu126`` or ``cu130-windows-x86_64``.

        Raises:
            UsageError: The text is not the name of a target.
        """
        form = re.fullmatch(_FORM, text)
        backend = form and known_backend(form[1].replace("-", "."))
        if form is None or backend is None:
            raise UsageError(
                "target-malformed",
                f"{text!r} is not a valid target",
                hint="Use a target such as cu126, cpu, cu130-windows-x86_64, or cpu-macos-arm64",
            )
        return cls(backend.tag, form[2] or "linux", form[3] or "x86_64")

    def __str__(self) -> str:
        # A lock file's name has no dots (PEP 751).
        backend = self.backend.replace(".", "-")
        if self.os == "linux" and self.arch == "x86_64":
            return backend
        return f"{backend}-{self.os}-{self.arch}"

    @property
    def filename(self) -> str:
        """The name of the target's lock file."""
        return f"pylock.{self}.toml"

    @property
    def marker(self) -> str:
        """The marker of the target's environments."""
        values = self.environment("3.12")
        names = ("sys_platform", "platform_machine", "implementation_name")
        comparisons = [f"{name} == '{values[name]}'" for name in names]
        return " and ".join(comparisons)

    @property
    def uv_platform(self) -> str:
        """The value for uv's ``--python-platform``."""
        glibc = self.glibc.replace(".", "_")
        linux = f"{self.arch}-manylinux_{glibc}"
        return _UV.get((self.os, self.arch), linux)

    def environment(self, python: str) -> dict[str, str]:
        """Return the target's marker values for CPython ``X.Y[.Z]``."""
        return marker_environment(self.os, self.arch, python)

    def tags(self, python: str) -> tuple[Tag, ...]:
        """Return the compatible wheel tags for CPython ``X.Y``, best first."""
        return _list_tags(python, tuple(self._list_platforms()))

    def _list_platforms(self) -> Iterator[str]:
        if self.os == "windows":
            yield "win_amd64" if self.arch == "x86_64" else "win_arm64"
        elif self.os == "macos":
            from packaging.tags import mac_platforms

            release = int(self.macos.split(".")[0])
            yield from mac_platforms((release, 0), self.arch)
        else:
            for number in range(parse_minor(self.glibc), min(_OLD_NAMES) - 1, -1):
                yield f"manylinux_2_{number}_{self.arch}"
                if number in _OLD_NAMES:
                    yield f"{_OLD_NAMES[number]}_{self.arch}"
            yield f"linux_{self.arch}"


def find_locks(folder: Path) -> list[Path]:
    """Return the paths of the lock files in a folder, sorted by name."""
    return sorted(folder.glob("pylock.*toml"))


# Cached: each package in a lock is compared with the same hundreds of tags.
@cache
def _list_tags(python: str, platforms: tuple[str, ...]) -> tuple[Tag, ...]:
    from packaging.tags import compatible_tags, cpython_tags

    version = tuple(map(int, python.split(".")))
    abi = f"cp{python.replace('.', '')}"
    own = cpython_tags(version, [abi], platforms)
    common = compatible_tags(version, abi, platforms)
    return (*own, *common)


def select_best_files(
    files: Iterable[Wheel], tags: Sequence[Tag], key: Callable[[Wheel], str]
) -> list[Wheel]:
    """Return the file with the best tag of each group; the first one on a tie.

    Args:
        files: The wheels.
        tags: The compatible tags, best first.
        key: Returns a file's group, such as its package.
    """
    from packaging.tags import create_compatible_tags_selector

    groups: dict[str, list[tuple[Wheel, frozenset[Tag]]]] = {}
    for file in files:
        groups.setdefault(key(file), []).append((file, file.tags))
    select = create_compatible_tags_selector(tags)
    return [next(select(group), group[0][0]) for group in groups.values()]


def find_required_glibc(files: Iterable[tuple[str, str]], least: str = GLIBC) -> str:
    """Return the lowest glibc version that every package supports.

    Args:
        files: The package and file names of a lock.
        least: The minimum result. The default is the glibc that torch wheels require.
    """
    oldest: dict[str, int] = {}
    for package, name in files:
        levels = map(int, re.findall(r"manylinux_2_(\d+)_", name))
        floor = min(levels, default=0)
        oldest[package] = min(oldest.get(package, floor), floor)
    newest = max([parse_minor(least), *oldest.values()])
    return f"2.{newest}"


def select_uv_glibc(glibc: str) -> str:
    """Return the latest glibc that uv can resolve for, up to the machine's."""
    levels = [level for level in _UV_GLIBC if level <= parse_minor(glibc)]
    return f"2.{max(levels, default=_UV_GLIBC[0])}"


def parse_minor(glibc: str) -> int:
    """Return the minor version number of a glibc version."""
    return int(glibc.split(".")[1])
