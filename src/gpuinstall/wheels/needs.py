"""What a wheel's native code needs to be loaded: libraries, a CUDA, a glibc, a torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from gpuinstall.wheels.elf import X86_64, Elf, read_elf
from gpuinstall.wheels.torch_abi import FIRST_STABLE, load_exports, ordinary_names, stable_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from zipfile import ZipInfo

    from gpuinstall.wheels.wheel_reader import WheelReader

    Libraries = Mapping[str, Elf | None]

TorchKind = Literal["stable", "ordinary", "none", "unknown"]

_NATIVE = re.compile(r"[\w./+-]{1,250}\.(so(\.[\w.]+)?|pyd|dll)", re.ASCII)
_BEGINNING = 256 << 10
"""In packed bytes: it held the tables of every library that was measured but those that had been patched."""
_SMALL, _SMALL_INFLATED, _SMALL_IN_ALL = 10 << 20, 48 << 20, 32 << 20
"""Where the beginning says nothing, files up to so many packed bytes are read whole, so many of one wheel."""
_REQUESTS = 40
"""After how many requests no further library is read, the largest come first: METADATA and the GPU code need some."""
_HASHED = re.compile(r"[-.][0-9a-f]{8}(?=\.so)")
"""What auditwheel puts into the name of a library that it bundles."""

OF_TORCH = re.compile(r"lib(torch|c10)(_\w+)?\.so")
_OF_WINDOWS = re.compile(r"cudart64_(\d\d)")


class SharedLibrary(NamedTuple):
    """A row of ``libraries.toml``: ``ahead`` is how far CUDA's major is ahead of the library's, where that tells it."""

    name: str
    ahead: int | None
    package: str
    plain_from: int

    def package_for(self, cuda: int | None) -> str | None:
        """The package that has it for a CUDA; None where its name needs one and none is known."""
        if cuda is None and "{cuda}" in self.package:
            return None
        plain = (cuda or 0) >= self.plain_from
        return self.package.replace("-cu{cuda}", "") if plain else self.package.format(cuda=cuda)


class SharedLibraries(NamedTuple):
    """The table as shipped; the patterns match whole names of libraries."""

    rows: Mapping[str, SharedLibrary]
    of_the_driver: re.Pattern[str]
    of_the_system: re.Pattern[str]
    plugins: re.Pattern[str]
    opened: re.Pattern[bytes]

    def row(self, library: str) -> SharedLibrary | None:
        """The row of ``libcudart.so.12``, or of what auditwheel calls ``libcudart-0b3e2b5d.so.12.4.127``."""
        stem = _HASHED.sub("", library).partition(".so")[0]
        variants = (row for name, row in self.rows.items() if stem.startswith(f"{name}_"))
        return self.rows.get(stem) or next(variants, None)

    def cuda(self, library: str) -> int | None:
        """The CUDA major that a library is of, as far as its name tells."""
        if windows := _OF_WINDOWS.match(library):
            return int(windows[1])
        row, version = self.row(library), library.partition(".so.")[2].partition(".")[0]
        return (
            int(version) + row.ahead
            if row and row.ahead is not None and version.isdecimal()
            else None
        )


@cache
def load_libraries() -> SharedLibraries:
    """Load the table as shipped."""
    from pathlib import Path

    import tomli

    table = tomli.loads(Path(__file__).with_name("libraries.toml").read_text("utf-8"))
    rows = {
        row["name"]: SharedLibrary(
            row["name"], row.get("cuda"), row["package"], row.get("plain_from", 1000)
        )
        for row in table["libraries"]
    }
    names = "|".join(sorted(rows, key=len, reverse=True)).encode()
    opened = re.compile(
        rb"(?<=\0)(?:%b)(?:_[a-z_]+)?\.so\.\d[\d.]{0,15}(?=\0)|cudart64_\d{2,3}\.dll" % names
    )
    driver, system, plugins = (
        re.compile(table[key]) for key in ("of_the_driver", "of_the_system", "plugins")
    )
    return SharedLibraries(rows, driver, system, plugins, opened)


@dataclass(frozen=True)
class TorchNeeds:
    """Which torch a file's code loads beside."""

    kind: TorchKind = "none"
    """``unknown`` is a file of which a library was not read."""
    oldest: str | None = None
    """``stable`` code loads beside it and every newer one; None if that is newer than the table."""
    fits: tuple[str, ...] | None = None
    """The minor releases that have every name of ``ordinary`` code, of those ``judged``."""
    judged: tuple[str, ...] = ()

    def verdict(self, minor: str) -> bool | None:
        """Say whether the code loads beside a minor release; None where nobody knows."""
        if self.kind == "none":
            return True
        if self.kind == "stable" and self.oldest:
            return _number(minor) >= _number(self.oldest)
        return minor in (self.fits or ()) if minor in self.judged else None


@dataclass(frozen=True)
class Needs:
    """What the native code of a wheel needs.

    ``libraries`` are those that the loader looks for and the wheel has not itself, without those of every Linux;
    ``opened`` are named by a string alone. ``cuda`` is the major of the former, None where there is none or two.
    ``glibc`` is the highest version of its symbols. ``unread`` are the wheel's own libraries that say nothing.
    """

    libraries: tuple[str, ...] = ()
    opened: tuple[str, ...] = ()
    cuda: int | None = None
    glibc: str | None = None
    torch: TorchNeeds = TorchNeeds()
    unread: tuple[str, ...] = ()

    @property
    def is_for_gpus(self) -> bool:
        """Say whether it is linked to what code for GPUs is linked to."""
        return self.cuda is not None or self.torch.kind in {"stable", "ordinary"}


def own_cuda(needs: Needs, opened: Collection[str], of_code: str | None) -> str | None:
    """The CUDA that a file was made with: of the libraries it needs, and as exact as its GPU code (``of_code``) says.

    On Windows the name of the runtime's library stands for what is needed. Elsewhere a string alone is no answer: None.
    """
    shared = load_libraries()
    windows = {shared.cuda(library) for library in opened if library.endswith(".dll")}
    major = needs.cuda or (windows.pop() if len(windows) == 1 else None)
    return of_code if major is None or (of_code or "").startswith(f"{major}.") else f"{major}.0"


def read_needs(wheel: WheelReader, only: Collection[str] | None = None) -> Needs:
    """Read what a wheel needs, or only some of its libraries do; raise WheelError where it is malformed."""
    native = [member for member in wheel.members.values() if _NATIVE.fullmatch(member.filename)]
    native = [member for member in native if only is None or member.filename in only]
    native.sort(key=lambda member: (-member.file_size, member.filename))
    opened: set[str] = set()
    libraries: dict[str, Elf | None] = {}
    budget = _SMALL_IN_ALL
    for member in native:
        elf = None
        if wheel.requests < _REQUESTS and ".so" in member.filename:
            elf, data, cost = _read_library(wheel, member, budget)
            budget -= cost
            opened |= {match.decode() for match in load_libraries().opened.findall(data)}
        libraries[member.filename] = elf
    return needs_of(libraries, opened, {name.rpartition("/")[2] for name in wheel.members})


def needs_of(libraries: Libraries, opened: Iterable[str], own: Collection[str]) -> Needs:
    """Say what libraries need together; ``own`` are the names of the files that come with them."""
    elves = [elf for elf in libraries.values() if elf]
    shared = load_libraries()
    needs = {need for elf in elves for need in elf.needs}
    majors = {major for need in needs if (major := shared.cuda(need)) is not None}
    stems = [
        (path.rpartition("/")[2].partition(".so")[0], elf) for path, elf in libraries.items() if elf
    ]
    itself = {
        need
        for stem, elf in stems
        if not elf.whole
        for need in elf.needs
        if need.startswith(f"{stem}.so")
    }
    outside = {
        need
        for need in needs - itself
        if not (shared.of_the_system.fullmatch(need) or _is_own(need, own))
    }
    unread = tuple(sorted(name for name, elf in libraries.items() if elf is None))
    newest = max(filter(None, (elf.newest("GLIBC") for elf in elves)), default=None)
    return Needs(
        libraries=tuple(sorted(outside)),
        opened=tuple(sorted(name for name in {*opened} - needs if not _is_own(name, own))),
        cuda=majors.pop() if len(majors) == 1 else None,
        glibc=".".join(map(str, newest)) if newest else None,
        torch=_torch_needs(elves, bool(unread)),
        unread=unread,
    )


def _read_library(
    wheel: WheelReader, member: ZipInfo, budget: int
) -> tuple[Elf | None, bytes, int]:
    """Read the beginning of a library, or all of a small one; with what was read, and the packed bytes beyond."""
    small = member.file_size <= _SMALL_INFLATED and member.compress_size <= min(_SMALL, budget)
    if not (small and member.compress_size <= _BEGINNING):
        data = wheel.beginning(member.filename, _BEGINNING)
        if (elf := read_elf(data, whole=False)) or not small:
            return elf, data, 0
    data = b"".join(wheel.stream(member.filename))
    return read_elf(data, whole=True), data, member.compress_size


def _torch_needs(elves: Iterable[Elf], unread: bool) -> TorchNeeds:
    undefined, defined, machines = set[bytes](), set[bytes](), set[int]()
    for elf in elves:
        undefined |= elf.undefined()
        machines.add(elf.machine)
    wanted = ordinary_names(undefined) | stable_names(undefined)
    for elf in elves if wanted else ():
        defined |= elf.defined() & wanted
    ordinary, stable = ordinary_names(wanted - defined), stable_names(wanted - defined)
    if ordinary and machines != {X86_64}:
        return TorchNeeds("ordinary")
    if not ordinary and (unread or not stable):
        linked = any(OF_TORCH.match(need) for elf in elves for need in elf.needs)
        return TorchNeeds("unknown" if unread or linked else "none")
    missing = load_exports().missing(ordinary | stable)
    judged = tuple(missing)
    fits = tuple(minor for minor in judged if not missing[minor])
    if ordinary:
        return TorchNeeds("ordinary", fits=fits, judged=judged)
    # What one release lacks, those before it cannot be counted on to have: the interface only grows.
    newest_without = max((judged.index(minor) for minor in judged if minor not in fits), default=-1)
    since = (
        minor for minor in judged[newest_without + 1 :] if _number(minor) >= _number(FIRST_STABLE)
    )
    return TorchNeeds("stable", oldest=next(since, None), judged=judged)


def _is_own(library: str, own: Collection[str]) -> bool:
    """Say whether a library is among the files; of ``libx.so.1.2.3`` the loader may know ``libx.so.1`` alone."""
    return library in own or any(name.startswith(f"{library}.") for name in own)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
