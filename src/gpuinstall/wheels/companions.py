"""Which architectures a package beside torch has code for: the library that answers for it, and its fatbins."""

from __future__ import annotations

import math
import re
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuinstall.base.values import dataclass
from gpuinstall.wheels.gpu_code import ordered, read_fatbins
from gpuinstall.wheels.needs import Needs, load_libraries, name_cuda, read_needs
from gpuinstall.wheels.pe import without_relocatable
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuinstall.wheels.wheel_reader import WheelReader

    _Pattern = re.Pattern[str]

_LIBRARY = re.compile(r"[\w./+-]{1,250}\.(so(\.\d+)*|dll|pyd)", re.ASCII)
_CUDA_IN_NAME = re.compile(r"-(gpu|cu(da)?\d*x?)(?=-|$)", re.ASCII)
"""What the name of a package says of its code, and that of its module does not."""
_DATA = re.compile(r"[^/]+\.data/(purelib|platlib)/")
"""Folders whose files are installed beside the others."""
_BUNDLED = ".libs/"
"""Where auditwheel puts the libraries of others."""
_TRIED = 4
_MOST = 128 << 20
"""How many inflated bytes of a library to search if nothing tells that it has GPU code."""


@dataclass(frozen=True)
class CompanionCode:
    """The GPU code of a package; empty if it has none."""

    member: str | None = None
    """The library that answers for the package."""
    architectures: tuple[str, ...] = ()
    cuda: str | None = None
    """The version that its PTX requires of the driver."""
    opened: frozenset[str] = frozenset()
    """The libraries that its strings name."""
    is_whole: bool = True
    """Whether all of the library was read."""
    unlinked: tuple[str, ...] = ()
    """The code of parts, which a driver would have to link to run it."""
    size: int = 0
    """Of the library, in bytes."""

    @property
    def is_portable(self) -> bool:
        """Whether it has PTX."""
        return any(name.startswith("compute_") for name in self.architectures)


@dataclass(frozen=True)
class Members:
    """The table as shipped, ``members.toml``; the patterns match whole names, but for ``optional``."""

    rows: tuple[tuple[_Pattern, _Pattern], ...]
    """Packages, with those of their libraries that answer for them."""
    optional: _Pattern
    """Parts that a package does without."""
    of_isa: Mapping[str, str]
    """The CUDA that brought a version of PTX's ISA."""
    runtime: _Pattern
    """The packages that bring CUDA's runtime."""
    with_torch: _Pattern
    """The packages that torch's own build answers for."""
    not_pinned: _Pattern
    """Those of them that it answers for in its own version alone."""
    compiled_beside: _Pattern
    """What requires one of these may have GPU code although no row names it."""
    opened: Mapping[str, Mapping[str, str]]
    """By package: the CUDA whose libraries it opens by name alone, by the version since which it is so."""
    stated: Mapping[str, Mapping[str, str]]
    """By package: the CUDA that its makers state, by the version since which it is so."""
    lowest: Mapping[str, Mapping[str, str]]
    """By package: the lowest compute capability that its makers state, by the version since which it is so."""
    must_open: Mapping[str, _Pattern]
    """By package: the libraries that it opens by name and does nothing without."""
    pairs: tuple[tuple[_Pattern, SpecifierSet, str, SpecifierSet, str], ...]
    """Packages, and the versions of them, that do not go together; with why not."""

    def clashes(self, versions: Mapping[str, str]) -> Iterator[str]:
        """Yield which of some packages do not go together, and why, although no METADATA says so."""
        for pattern, specifier, other_name, other_specifier, why in self.pairs:
            for name, version in versions.items():
                match = pattern.fullmatch(name)
                other = match and match.expand(other_name)
                if other is None or other not in versions:
                    continue
                if specifier.contains(version, prereleases=True) and other_specifier.contains(
                    versions[other], prereleases=True
                ):
                    yield f"{name} {version} and {other} {versions[other]} do not go together: {why}"

    def cuda(self, package: str, version: Version) -> str | None:
        """Return the CUDA of a version of a package that its files do not tell: as its maker says, or as its name."""
        # The newest version comes first.
        rows = self.opened.get(package) or self.stated.get(package, {})
        for since, cuda in rows.items():
            if version >= Version(since):
                return cuda
        return name_cuda(package)

    def lowest_capability(self, package: str, version: Version) -> str | None:
        """Return the lowest compute capability that the makers of a version state."""
        for since, capability in self.lowest.get(package, {}).items():
            if version >= Version(since):
                return capability
        return None

    def names(self, package: str) -> bool:
        """Whether it is known which library answers for a package."""
        return bool(self._libraries_of(package))

    def has_runtimes_apart(self, package: str) -> bool:
        """Whether a package has one library for each CUDA, of which torch's own is taken."""
        libraries = self._libraries_of(package)
        return any("cuda" in library.groupindex for library in libraries)

    def is_spare(self, package: str, library: str) -> bool:
        """Whether a package does without a library: an optional part, or the one of another CUDA."""
        return self.has_runtimes_apart(package) or self.is_optional(package, library)

    def is_optional(self, package: str, library: str) -> bool:
        """Whether a library is a part that a package does without, and not what the package is named after."""
        if self.is_optional_package(package):
            return False
        return self.optional.search(library) is not None

    def is_optional_package(self, package: str) -> bool:
        """Whether a package is itself what others have as an optional part."""
        name = package.replace("-", "_")
        return self.optional.search(name) is not None

    def answering(
        self,
        package: str,
        names: Collection[str],
    ) -> list[re.Match[str]]:
        """Return the libraries that answer for a package; more than one if each is for another CUDA."""
        matches = []
        for library in self._libraries_of(package):
            for name in names:
                match = library.fullmatch(name)
                if match:
                    matches.append(match)
        return matches

    def _libraries_of(self, package: str) -> list[_Pattern]:
        return [library for packages, library in self.rows if packages.fullmatch(package)]


@cache
def load_members() -> Members:
    """Load the table as shipped."""
    import tomli

    text = Path(__file__).with_name("members.toml").read_text("utf-8")
    table = tomli.loads(text)
    rows = []
    for row in table["members"]:
        packages = re.compile(row["package"])
        libraries = re.compile(row["member"], re.ASCII)
        rows.append((packages, libraries))
    opened = {}
    must_open = {}
    for package, row in table["opened"].items():
        opened[package] = row["since"]
        must_open[package] = re.compile(rf"({row['libraries']})\.so\.\d+")
    stated = {}
    lowest = {}
    for package, row in table["stated"].items():
        stated[package] = row["since"]
        lowest[package] = row.get("lowest", {})
    optional = "|".join(row["part"] for row in table["optional"])
    pairs = []
    for row in table["pairs"]:
        versions = SpecifierSet(row.get("versions", ""))
        others = SpecifierSet(row.get("other_versions", ""))
        pairs.append((re.compile(row["package"]), versions, row["other"], others, row["why"]))
    return Members(
        rows=tuple(rows),
        optional=re.compile(optional, re.IGNORECASE),
        of_isa=table["cuda_of_isa"]["versions"],
        runtime=re.compile(table["runtime"]["packages"]),
        with_torch=re.compile(table["with_torch"]),
        not_pinned=re.compile(table["not_pinned"]),
        compiled_beside=re.compile(table["compiled_beside"]),
        opened=opened,
        stated=stated,
        lowest=lowest,
        must_open=must_open,
        pairs=tuple(pairs),
    )


def read_package(
    wheel: WheelReader,
    package: str,
    *,
    may_have_code: bool,
    cuda: str | None = None,
    whole: bool = False,
) -> tuple[CompanionCode, Needs]:
    """Return what the native code of a wheel has and needs: that of the libraries that decide whether it runs.

    Args:
        wheel: The wheel.
        package: Its package, by its normalized name.
        may_have_code: Whether GPU code is looked for although no library is linked to what such is linked to.
        cuda: The CUDA of the torch that it runs beside.
        whole: Whether the libraries are read to their end.

    Raises:
        WheelError: if it is malformed.
    """
    members = load_members()
    answering = members.answering(package, wheel.members)
    if members.has_runtimes_apart(package):
        # Of its libraries, one for each CUDA, only that of this one counts.
        nearest = _for_cuda(answering, cuda)
        names = [nearest] if nearest else []
        return read_code(wheel, names, whole=whole), read_needs(wheel, names)
    deciding = deciding_libraries(package, wheel.members)
    needs = read_needs(wheel, deciding)
    if not (needs.is_for_gpus or may_have_code):
        return CompanionCode(), needs
    if answering:
        return read_code(wheel, [answering[0][0]], whole=whole), needs
    # What auditwheel calls a library of others may be the package's own.
    own = {name for name in needs.paths if not load_libraries().row(_file_name(name))} or {
        *deciding
    }
    if whole and deciding:
        # Parts that it does without have no say against a GPU, but for one.
        modules = {*map(_module, deciding)}
        own |= {name for name in wheel.members if _is_part(name, modules)}
    return read_code(wheel, own, whole=whole), needs


def deciding_libraries(package: str, names: Iterable[str]) -> list[str]:
    """Return the libraries that decide whether a package runs: those of the module that it is named after.

    If that has none, all that the wheel does not bundle of others; parts that the package does without are never among
    them.

    Args:
        package: The package, by its normalized name.
        names: The paths in its wheel.
    """
    members = load_members()
    libraries = [name for name in names if _LIBRARY.fullmatch(name)]
    libraries = [name for name in libraries if not members.is_optional(package, name)]
    shared = load_libraries()
    own = [name for name in libraries if _BUNDLED not in name and not shared.row(_file_name(name))]
    # Some are made of nothing but plugins, one for each FFmpeg.
    own = [name for name in own if not shared.plugins.search(name)] or own
    modules = {package.replace("-", "_"), _CUDA_IN_NAME.sub("", package).replace("-", "_")}
    namesakes = [name for name in own if _module(name).lower() in modules]
    return namesakes or own or libraries


def read_tables(wheel: WheelReader, package: str) -> Needs:
    """Return what one library of a wheel needs: the one that answers for the package, else its largest own one.

    Raises:
        WheelError: if the wheel is malformed.
    """
    members = load_members()
    if members.has_runtimes_apart(package):
        return Needs()
    names = [match[0] for match in members.answering(package, wheel.members)]
    names = names or deciding_libraries(package, wheel.members)
    largest = sorted(names, key=lambda name: wheel.members[name].file_size)[-1:]
    return read_needs(wheel, largest)


def read_code(
    wheel: WheelReader,
    libraries: Collection[str],
    *,
    whole: bool = False,
) -> CompanionCode:
    """Return the GPU code of a module.

    Args:
        wheel: The wheel.
        libraries: Those of the module.
        whole: Whether to read all of them to their end, and not only the largest that has GPU code.

    Raises:
        WheelError: if it is malformed.
    """
    largest_first = sorted(libraries, key=lambda name: (-wheel.members[name].file_size, name))
    codes = []
    for name in largest_first if whole else largest_first[:_TRIED]:
        code = _read_library(wheel, name, whole=whole)
        codes.append(code)
        if code.architectures and not whole:
            # The others may have what this one lacks.
            return replace(code, is_whole=code.is_whole and len(libraries) == 1)
    return _joined(codes)


def _joined(codes: Iterable[CompanionCode]) -> CompanionCode:
    """Return the code of a module, of that of its libraries.

    Machine code counts that any of them has: kernels for one chip stand beside those for the others. PTX counts if
    most of the libraries have it, by their size: what it is compiled for does not do the work of the others.
    """
    codes = list(codes)
    compiled = [code for code in codes if code.architectures]
    is_whole = all(code.is_whole for code in codes)
    unlinked = {name for code in codes for name in code.unlinked}
    if not compiled:
        return CompanionCode(is_whole=is_whole, unlinked=ordered(unlinked))
    portable = [code for code in compiled if code.is_portable]
    of_most = 2 * sum(code.size for code in portable) >= sum(code.size for code in compiled)
    names = {name for code in compiled for name in code.architectures}
    architectures = {name for name in names if of_most or not name.startswith("compute_")}
    return CompanionCode(
        member=compiled[0].member,
        architectures=ordered(architectures),
        cuda=next((code.cuda for code in compiled if code.cuda), None),
        opened=frozenset().union(*(code.opened for code in compiled)),
        is_whole=is_whole,
        unlinked=ordered(unlinked - names),
    )


def _module(library: str) -> str:
    """Return the top-level module of a library, ``_C`` of ``_C.cpython-311-x86_64-linux-gnu.so``."""
    first, _, _ = _DATA.sub("", library).partition("/")
    return first.partition(".")[0]


def _is_part(name: str, modules: Collection[str]) -> bool:
    if _BUNDLED in name or _LIBRARY.fullmatch(name) is None:
        return False
    return _module(name) in modules


def _file_name(library: str) -> str:
    return library.rpartition("/")[2]


def _for_cuda(
    libraries: Iterable[re.Match[str]],
    cuda: str | None,
) -> str | None:
    """Return the library of this CUDA, else the nearest below of its major, else the nearest above, else the oldest."""
    version = re.match(r"([0-9]{1,3})\.([0-9])", cuda or "")
    if version is None:
        return None
    number = int(version[1] + version[2])
    by_number = {int(library["cuda"]): library[0] for library in libraries}
    of_major = [other for other in by_number if other // 10 == number // 10]
    below = [other for other in of_major if other <= number]
    nearest = max(below) if below else min(of_major or by_number)
    return by_number[nearest]


def _read_library(wheel: WheelReader, name: str, *, whole: bool) -> CompanionCode:
    """Return the GPU code of a library; not ``whole``: of its beginning, if nothing tells that it has any."""
    opened = set[str]()
    size = wheel.members[name].file_size
    most = math.inf if whole else _MOST
    with closing(wheel.stream(name)) as pieces:
        part = _Part(pieces)
        noted = _note_libraries(part, opened, most)
        code = read_fatbins(without_relocatable(noted), whole=whole)
    return CompanionCode(
        member=name if code.architectures else None,
        architectures=code.architectures,
        cuda=_cuda_of_isa(code.isa),
        opened=frozenset(opened),
        is_whole=code.is_whole and size <= most and not part.is_cut,
        unlinked=code.unlinked,
        size=size,
    )


class _Part:
    """The pieces of a library up to where reading on would take too much, or too long."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.is_cut = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._pieces
        except WheelError as error:
            if error.code not in {"wheel-too-large", "too-slow"}:
                raise
            self.is_cut = True


def _cuda_of_isa(isa: tuple[int, int] | None) -> str | None:
    """Return the CUDA that brought a version of PTX's ISA; of one newer than the table, the newest that is known."""
    if isa is None:
        return None
    of_isa = load_members().of_isa
    major, minor = isa
    newest = max(tuple(map(int, text.split("."))) for text in of_isa)
    if isa > newest:
        major, minor = newest
    return of_isa.get(f"{major}.{minor}")


def _note_libraries(
    pieces: Iterable[bytes],
    opened: set[str],
    most: float,
) -> Iterator[bytes]:
    """Yield the pieces of a file up to ``most`` bytes, and add to ``opened`` the libraries that they name."""
    for piece in pieces:
        opened |= load_libraries().opened_by(piece)
        yield piece
        most -= len(piece)
        if most <= 0:
            return
