"""Which architectures a package beside torch has code for: the library that answers for it, and its fatbins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from posixpath import basename
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuinstall.base.codec import read_object
from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import numbers
from gpuinstall.wheels.gpu_code import ordered, read_fatbins
from gpuinstall.wheels.needs import (
    Needs,
    TorchNeeds,
    load_libraries,
    name_cuda,
    own_cuda,
    read_needs,
)
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

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
class WheelFacts:
    """What the native code of a wheel has and needs: all that rules are told of its bytes."""

    architectures: tuple[str, ...] = ()
    cuda: str | None = None
    """The CUDA that it was made with, or the one that its PTX requires of the driver."""
    witness: str | None = None
    """The library that answers for the wheel."""
    is_whole: bool = True
    """Whether all that answers was read."""
    needs: tuple[str, ...] = ()
    """The libraries that its code is linked to and does not bring."""
    opens: tuple[str, ...] = ()
    """The libraries that a string alone names."""
    glibc: str | None = None
    torch: TorchNeeds = TorchNeeds()


def _pattern(text: str) -> _Pattern:
    return re.compile(text, re.ASCII)


def _any_case(text: str) -> _Pattern:
    return re.compile(text, re.IGNORECASE)


def _sonames(names: str) -> _Pattern:
    return re.compile(rf"({names})\.so\.\d+")


_Whole = Annotated[_Pattern, _pattern]
_Specifiers = Annotated[SpecifierSet, SpecifierSet]


class Member(NamedTuple):
    """Packages, with those of their libraries that answer for them."""

    package: _Whole
    member: _Whole


class OptionalPart(NamedTuple):
    """A part that a package does without."""

    part: Annotated[_Pattern, _any_case]


class Statement(NamedTuple):
    """The CUDA of a package that its files do not tell."""

    since: Mapping[str, str]
    """The CUDA, by the version since which it is so, the newest first."""
    libraries: Annotated[_Pattern, _sonames] | None = None
    """What it opens by name alone, and does nothing without."""


class Clash(NamedTuple):
    """Packages, and the versions of them, that do not go together; with why not."""

    package: _Whole
    other: str
    why: str
    versions: _Specifiers = SpecifierSet()
    other_versions: _Specifiers = SpecifierSet()


@dataclass(frozen=True)
class Members:
    """The table as shipped, ``members.toml``; the patterns match whole names, but for ``optional``."""

    members: tuple[Member, ...]
    optional: tuple[OptionalPart, ...]
    cuda_of_isa: Mapping[str, Any]
    """``versions`` has the CUDA that brought a version of PTX's ISA."""
    runtime: _Whole
    """The packages that bring CUDA's runtime."""
    with_torch: _Whole
    """The packages that torch's own build answers for."""
    compiled_beside: _Whole
    """What requires one of these may have GPU code although no row names it."""
    stated: Mapping[str, Statement]
    """By package."""
    pairs: tuple[Clash, ...]

    @property
    def must_open(self) -> Mapping[str, _Pattern]:
        """The libraries that packages open by name and do nothing without."""
        rows = self.stated.items()
        return {package: row.libraries for package, row in rows if row.libraries}

    def clashes(self, versions: Mapping[str, str]) -> Iterator[str]:
        """Yield which of some packages do not go together, and why, although no METADATA says so."""
        for pair in self.pairs:
            for name, version in versions.items():
                match = pair.package.fullmatch(name)
                other = match and match.expand(pair.other)
                if other is None or other not in versions:
                    continue
                is_meant = pair.versions.contains(version, prereleases=True)
                if is_meant and pair.other_versions.contains(
                    versions[other], prereleases=True
                ):
                    pairing = f"{name} {version} and {other} {versions[other]}"
                    yield f"{pairing} do not go together: {pair.why}"

    def cuda(self, package: str, version: Version) -> str | None:
        """Return the CUDA of a version of a package that its files do not tell: as its maker says, or as its name."""
        row = self.stated.get(package)
        for first, cuda in row.since.items() if row else ():
            if version >= Version(first):
                return cuda
        return name_cuda(package)

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
        return any(row.part.search(library) for row in self.optional)

    def is_optional_package(self, package: str) -> bool:
        """Whether a package is itself what others have as an optional part."""
        name = package.replace("-", "_")
        return any(row.part.search(name) for row in self.optional)

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
        return [row.member for row in self.members if row.package.fullmatch(package)]


@cache
def load_members() -> Members:
    """Load the table as shipped."""
    import tomli

    text = Path(__file__).with_name("members.toml").read_text("utf-8")
    return read_object(Members, tomli.loads(text))


def read_package(
    wheel: WheelReader,
    package: str,
    *,
    may_have_code: bool,
    cuda: str | None = None,
    whole: bool = False,
) -> WheelFacts:
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
        code = _read_code(wheel, names, whole=whole)
        return _facts(code, read_needs(wheel, names))
    deciding = deciding_libraries(package, wheel.members)
    needs = read_needs(wheel, deciding)
    brings_runtime = any(map(_is_bundled_runtime, wheel.members))
    if not (needs.is_for_gpus or brings_runtime or may_have_code):
        return _facts(WheelFacts(), needs)
    if answering:
        first = answering[0][0]
        code = _read_code(wheel, [first], whole=whole)
        return _facts(code, needs)
    # What auditwheel calls a library of others may be the package's own.
    own = set(deciding)
    shared = load_libraries()
    for name in needs.paths:
        if not shared.row(basename(name)):
            own.add(name)
    if whole:
        # Parts that it does without have no say against a GPU, but for one.
        modules = {*map(_module, deciding)}
        libraries = filter(_LIBRARY.fullmatch, wheel.members)
        own.update(
            name
            for name in libraries
            if _BUNDLED not in name and _module(name) in modules
        )
    code = _read_code(wheel, own, whole=whole)
    return _facts(code, needs)


def _is_bundled_runtime(name: str) -> bool:
    """Whether a file is a library of CUDA that a wheel brings for its own, as auditwheel bundles them."""
    return _BUNDLED in name and load_libraries().cuda(basename(name)) is not None


def _facts(code: WheelFacts, needs: Needs) -> WheelFacts:
    """Return what the code of libraries says with what they need."""
    opens = {*needs.opened, *code.opens}.difference(needs.libraries)
    return replace(
        code,
        cuda=own_cuda(needs, code.opens, code.cuda),
        needs=needs.libraries,
        opens=tuple(sorted(opens)),
        glibc=needs.glibc,
        torch=needs.torch,
    )


def deciding_libraries(
    package: str,
    names: Iterable[str],
) -> list[str]:
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
    own = [
        name
        for name in libraries
        if _BUNDLED not in name and not shared.row(basename(name))
    ]
    # Some are made of nothing but plugins, one for each FFmpeg.
    own = [name for name in own if not shared.plugins.search(name)] or own
    modules = {
        package.replace("-", "_"),
        _CUDA_IN_NAME.sub("", package).replace("-", "_"),
    }
    namesakes = [name for name in own if _module(name).lower() in modules]
    return namesakes or own or libraries


def read_tables(wheel: WheelReader, package: str) -> WheelFacts:
    """Return what one library of a wheel needs: the one that answers for the package, else its largest own one.

    Raises:
        WheelError: if the wheel is malformed.
    """
    members = load_members()
    unread = WheelFacts(is_whole=False)
    if members.has_runtimes_apart(package):
        return _facts(unread, Needs())
    names = [match[0] for match in members.answering(package, wheel.members)]
    names = names or deciding_libraries(package, wheel.members)
    smallest_first = sorted(names, key=lambda name: wheel.members[name].file_size)
    largest = smallest_first[-1:]
    return _facts(unread, read_needs(wheel, largest))


def _read_code(
    wheel: WheelReader,
    libraries: Collection[str],
    *,
    whole: bool = False,
) -> WheelFacts:
    """Return the GPU code of a module.

    Machine code counts that any of its libraries has: kernels for one chip stand beside those for the others. PTX counts
    if the largest has it: what others are compiled for does not do its work.

    Args:
        wheel: The wheel.
        libraries: Those of the module.
        whole: Whether to read all of them to their end, and not only the largest that has GPU code.

    Raises:
        WheelError: if it is malformed.
    """
    largest_first = sorted(
        libraries, key=lambda name: (-wheel.members[name].file_size, name)
    )
    codes = []
    is_whole = True
    for name in largest_first if whole else largest_first[:_TRIED]:
        code = _read_library(wheel, name, whole=whole)
        is_whole = is_whole and code.is_whole
        if code.architectures and not whole:
            # The others may have what this one lacks.
            return replace(code, is_whole=code.is_whole and len(libraries) == 1)
        if code.architectures:
            codes.append(code)
    if not codes:
        return WheelFacts(is_whole=is_whole)
    architectures = set(codes[0].architectures)
    opens = set[str]()
    for code in codes:
        architectures.update(filter(_is_machine_code, code.architectures))
        opens.update(code.opens)
    return replace(
        codes[0],
        architectures=ordered(architectures),
        cuda=next((code.cuda for code in codes if code.cuda), None),
        opens=tuple(opens),
        is_whole=is_whole,
    )


def _is_machine_code(name: str) -> bool:
    return not name.startswith("compute_")


def _module(library: str) -> str:
    """Return the top-level module of a library, ``_C`` of ``_C.cpython-311-x86_64-linux-gnu.so``."""
    first, _, _ = _DATA.sub("", library).partition("/")
    return first.partition(".")[0]


def _for_cuda(
    libraries: Iterable[re.Match[str]],
    cuda: str | None,
) -> str | None:
    """Return the library of this CUDA, else the nearest below it, else the nearest above; of its major if there is one."""
    version = re.match(r"([0-9]{1,3})\.([0-9])", cuda or "")
    if version is None:
        return None
    major = int(version[1])
    number = 10 * major + int(version[2])

    def distance(library: re.Match[str]) -> tuple[bool, bool, int]:
        other = int(library["cuda"])
        return other // 10 != major, other > number, abs(other - number)

    return min(libraries, key=distance)[0]


def _read_library(
    wheel: WheelReader,
    name: str,
    *,
    whole: bool,
) -> WheelFacts:
    """Return the GPU code of a library; not ``whole``: of its beginning, if nothing tells that it has any."""
    opens = set[str]()
    left = wheel.members[name].file_size
    unread = 0 if whole else max(left - _MOST, 0)

    def pieces() -> Iterator[bytes]:
        nonlocal left
        try:
            for piece in stream:
                left -= len(piece)
                opens.update(load_libraries().opened_by(piece))
                yield piece
                if 0 < left <= unread:
                    return
        except WheelError as error:
            # What was read until then counts.
            if error.code not in {"wheel-too-large", "too-slow"}:
                raise

    with closing(wheel.stream(name)) as stream:
        code = read_fatbins(pieces(), whole=whole)
    return WheelFacts(
        architectures=code.architectures,
        cuda=_cuda_of_isa(code.isa),
        witness=name if code.architectures else None,
        is_whole=code.is_whole and left == 0,
        opens=tuple(opens),
    )


def _cuda_of_isa(isa: tuple[int, int] | None) -> str | None:
    """Return the CUDA that brought a version of PTX's ISA; of one newer than the table, the newest that is known."""
    if isa is None:
        return None
    of_isa: Mapping[str, str] = load_members().cuda_of_isa["versions"]
    older = [version for version in of_isa if numbers(version) <= isa]
    return of_isa[older[-1]] if older else None
