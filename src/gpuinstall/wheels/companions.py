"""Which architectures a package beside torch has code for: the library that answers for it, and its fatbins."""

from __future__ import annotations

import math
import re
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.wheels.gpu_code import read_fatbins
from gpuinstall.wheels.needs import load_libraries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from gpuinstall.wheels.wheel_reader import WheelReader

_LIBRARY = re.compile(r"[\w./+-]{1,250}\.(so(\.\d+)*|dll|pyd)", re.ASCII)
_TRIED = 4
_MOST = 128 << 20
"""How many inflated bytes of a library to search, where nothing says that it has GPU code."""


@dataclass(frozen=True)
class CompanionCode:
    """The GPU code of a package, and the library that was asked; None and empty where none has any.

    ``cuda`` is the version that its PTX asks of the driver; ``opened`` are the libraries that its strings name.
    """

    member: str | None = None
    architectures: tuple[str, ...] = ()
    cuda: str | None = None
    opened: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Members:
    """The rows of ``members.toml``: patterns of packages with those of their libraries, and of optional parts.

    ``of_isa`` gives the CUDA that brought a version of PTX's ISA, ``runtime`` are the packages that bring one.
    ``with_torch`` are the packages that torch's own build answers for, ``not_pinned`` those of them that it answers for
    in its own version alone; what demands one of ``compiled_beside`` may have GPU code although no row names it.
    ``must_open`` gives by package the libraries that it opens by name and does nothing without.
    """

    rows: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]
    optional: re.Pattern[str]
    of_isa: Mapping[str, str]
    runtime: re.Pattern[str]
    with_torch: re.Pattern[str]
    compiled_beside: re.Pattern[str]
    opened: Mapping[str, Mapping[str, str]]
    not_pinned: re.Pattern[str]
    must_open: Mapping[str, re.Pattern[str]]

    def cuda(self, package: str, version: Version) -> str | None:
        """The CUDA whose libraries a package opens by name alone, as authored by its versions, the newest first."""
        rows = self.opened.get(package, {})
        return next((cuda for since, cuda in rows.items() if version >= Version(since)), None)

    def names(self, package: str) -> bool:
        """Say whether it is known which library answers for a package."""
        return any(packages.fullmatch(package) for packages, _ in self.rows)

    def has_runtimes_apart(self, package: str) -> bool:
        """Say whether a package has one library for each CUDA, of which torch's own is taken."""
        return any(
            "cuda" in member.groupindex
            for packages, member in self.rows
            if packages.fullmatch(package)
        )

    def is_spare(self, package: str, library: str) -> bool:
        """Say whether a package does without a library: an optional part, or the one of another CUDA."""
        return self.has_runtimes_apart(package) or self.is_optional(package, library)

    def is_optional(self, package: str, library: str) -> bool:
        """Say whether a library is a part that a package does without, and not what the package is named after."""
        return bool(self.optional.search(library)) and not self.optional.search(
            package.replace("-", "_")
        )

    def answering(self, package: str, names: Collection[str]) -> list[re.Match[str]]:
        """Find the libraries that answer for a package; more than one where each is for another CUDA."""
        members = (member for packages, member in self.rows if packages.fullmatch(package))
        return [match for member in members for name in names if (match := member.fullmatch(name))]


@cache
def load_members() -> Members:
    """Load the table as shipped."""
    from pathlib import Path

    import tomli

    table = tomli.loads(Path(__file__).with_name("members.toml").read_text("utf-8"))
    rows = (
        (re.compile(row["package"]), re.compile(row["member"], re.ASCII))
        for row in table["members"]
    )
    return Members(
        rows=tuple(rows),
        optional=re.compile("|".join(row["part"] for row in table["optional"]), re.IGNORECASE),
        of_isa=table["cuda_of_isa"]["versions"],
        runtime=re.compile(table["runtime"]["packages"]),
        with_torch=re.compile(table["with_torch"]),
        compiled_beside=re.compile(table["compiled_beside"]),
        opened={package: row["since"] for package, row in table["opened"].items()},
        not_pinned=re.compile(table["not_pinned"]),
        must_open={
            package: re.compile(rf"({row['libraries']})\.so\.\d+")
            for package, row in table["opened"].items()
        },
    )


def read_companion(wheel: WheelReader, package: str, cuda: str | None = None) -> CompanionCode:
    """Read a wheel of ``package`` (its normalized name) as it runs beside a torch of CUDA ``cuda``, ``"12.8"``.

    Raise WheelError where it is malformed.
    """
    members = load_members()
    if found := members.answering(package, wheel.members):
        member = _for_cuda(found, cuda) if "cuda" in found[0].re.groupindex else found[0][0]
        return _code(wheel, member) if member else CompanionCode()
    libraries = [member for member in wheel.members.values() if _LIBRARY.fullmatch(member.filename)]
    needed = [member for member in libraries if not members.is_optional(package, member.filename)]
    for name in [
        member.filename for member in sorted(needed, key=lambda member: -member.file_size)[:_TRIED]
    ]:
        if (code := _code(wheel, name, _MOST)).architectures:
            return code
    return CompanionCode()


def _code(wheel: WheelReader, name: str, most: int | None = None) -> CompanionCode:
    shared, opened = load_libraries(), set[str]()

    def heard(pieces: Iterator[bytes], left: float) -> Iterator[bytes]:
        for piece in pieces:
            opened.update(match.decode() for match in shared.opened.findall(piece))
            yield piece
            left -= len(piece)
            if left <= 0:
                return

    with closing(wheel.stream(name)) as pieces:
        found = read_fatbins(heard(pieces, most or math.inf))
    told = load_members().of_isa.get("{}.{}".format(*found.isa)) if found.isa else None
    return CompanionCode(name, found.architectures, told, frozenset(opened))


def _for_cuda(found: list[re.Match[str]], cuda: str | None) -> str | None:
    """Take the library of this CUDA, else the nearest below of its major, else the nearest above, else the oldest."""
    version = re.match(r"([0-9]{1,3})\.([0-9])", cuda or "")
    wanted = int(version[1] + version[2]) if version else 0
    if not wanted:
        return None
    all_of_them = {int(match["cuda"]): match[0] for match in found}
    same = {number for number in all_of_them if number // 10 == wanted // 10}
    below = {number for number in same if number <= wanted}
    return all_of_them[max(below) if below else min(same or all_of_them)]
