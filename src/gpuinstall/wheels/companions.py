"""Which architectures a package beside torch has code for: the library that answers for it, and its fatbins."""

from __future__ import annotations

import math
import re
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.values import dataclass
from gpuinstall.wheels.gpu_code import ordered, read_fatbins
from gpuinstall.wheels.imports import Loading, read_imports
from gpuinstall.wheels.needs import (
    NativeFiles,
    Needs,
    TorchNeeds,
    is_linked_to_torch,
    load_libraries,
    name_cuda,
    needs_of,
    read_native,
    read_needs,
    without_numbers,
)
from gpuinstall.wheels.pe import without_relocatable
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuinstall.wheels.wheel_reader import WheelReader

    _Pattern = re.Pattern[str]

_LIBRARY = re.compile(r"[\w./+-]{1,250}\.(so(\.\d+)*|dll|pyd)", re.ASCII)
_OF_ONE_CHIP = re.compile(r"sm_\d+a").fullmatch
_FOR_GPUS = re.compile(r"(^|-)(gpu|cuda\d*x?|cu\d+)(-|$)", re.ASCII)
"""Names of packages that say that their code for GPUs is what they are for."""
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

    def with_library(self, other: CompanionCode) -> CompanionCode:
        """Return it with the code of another library of the same module."""
        if not other.architectures:
            return self
        return replace(
            self,
            member=self.member or other.member,
            architectures=ordered([*self.architectures, *other.architectures]),
            cuda=self.cuda or other.cuda,
            opened=self.opened | other.opened,
            unlinked=self.unlinked or other.unlinked,
        )


@dataclass(frozen=True)
class PackageCode:
    """What the native code of a package has and needs."""

    code: CompanionCode
    needs: Needs
    loading: Loading
    """Whether the package works without it."""


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

    def is_dispensable(self, package: str, library: str) -> bool:
        """Whether a library is a part that a package does without, or a plugin that is loaded on demand."""
        if self.is_optional(package, library):
            return True
        return load_libraries().plugins.search(library) is not None

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
    )


def read_package(
    wheel: WheelReader,
    package: str,
    *,
    may_have_code: bool,
    cuda: str | None = None,
    whole: bool = False,
) -> PackageCode:
    """Return what the native code of a wheel has and needs.

    What the import of the package opens counts, or what a row names; only without either everything that is not
    known to be optional.

    Args:
        wheel: The wheel.
        package: Its package, by its normalized name.
        may_have_code: Whether GPU code is looked for although no library is linked to what such is linked to.
        cuda: The CUDA of the torch that it runs beside.
        whole: Whether the library that answers is read to its end.

    Raises:
        WheelError: if it is malformed.
    """
    members = load_members()
    if members.has_runtimes_apart(package):
        # Of its libraries, one for each CUDA, only that of this one counts.
        code = read_companion(wheel, package, cuda, whole=whole)
        needs = read_needs(wheel, [code.member] if code.member else [])
        return PackageCode(code, needs, Loading.REQUIRED)
    files = read_native(wheel)
    needs = needs_of(files, wheel)
    if not (needs.is_for_gpus or may_have_code):
        return PackageCode(CompanionCode(), needs, Loading.UNKNOWN)
    names = {name for name in wheel.members if _LIBRARY.fullmatch(name)}
    if members.answering(package, names):
        code = read_companion(wheel, package, whole=whole)
        needed = {name for name in names if not members.is_dispensable(package, name)}
        needs = needs_of(files, wheel, needed)
        return PackageCode(code, needs, Loading.REQUIRED)

    libraries = _by_loading(wheel, package, files, names)
    code, loading = _code_by_loading(wheel, package, libraries, whole=whole)
    required = libraries[Loading.REQUIRED]
    if code.member:
        # Also of what the package does without, so that it can be said that it does not load.
        required = files.with_linked({*required, code.member})
    needs_of_required = needs_of(files, wheel, required)
    if not code.architectures and needs_of_required.is_for_gpus:
        loading = Loading.REQUIRED
    if loading is Loading.REQUIRED or (loading is Loading.OPTIONAL and required):
        return PackageCode(code, needs_of_required, loading)
    possible = required | libraries[Loading.UNKNOWN] | libraries[Loading.LATER]
    needs = _beside_some_torch(needs_of(files, wheel, possible), files, loading)
    needs_of_optional = needs_of(files, wheel, libraries[Loading.OPTIONAL])
    if needs_of_optional.is_for_gpus and not needs.is_for_gpus:
        return PackageCode(code, needs_of_optional, Loading.OPTIONAL)
    return PackageCode(code, needs, loading)


def read_tables(wheel: WheelReader, package: str) -> Needs:
    """Return what one library of a wheel needs: the one that answers for the package, else its largest own one.

    Raises:
        WheelError: if the wheel is malformed.
    """
    members = load_members()
    if members.has_runtimes_apart(package):
        return Needs()
    names = [match[0] for match in members.answering(package, wheel.members)]
    if not names:
        for name in wheel.members:
            is_bundled = _BUNDLED in name
            if (
                _LIBRARY.fullmatch(name)
                and not is_bundled
                and not members.is_dispensable(package, name)
            ):
                names.append(name)
    largest = sorted(names, key=lambda name: wheel.members[name].file_size)[-1:]
    return read_needs(wheel, largest)


def _code_by_loading(
    wheel: WheelReader,
    package: str,
    libraries: Mapping[Loading, Collection[str]],
    *,
    whole: bool,
) -> tuple[CompanionCode, Loading]:
    """Return the GPU code that a package needs most, and how much that is."""
    is_whole = True
    for loading, paths in libraries.items():
        # What the import opens is read on: a library of the CPU is never so large.
        is_searched = whole or loading is Loading.REQUIRED
        most = math.inf if is_searched else _MOST
        code = _read_largest(wheel, paths, most=most, whole=whole)
        is_whole = is_whole and code.is_whole
        if not code.architectures:
            continue
        if _is_for_one_chip(code) and not load_members().is_optional_package(package):
            # Such kernels stand beside others for every chip.
            return code, Loading.OPTIONAL
        # Whatever opens it, without it the package is not what its name says.
        return code, Loading.REQUIRED if _FOR_GPUS.search(package) else loading
    is_opened_later = libraries[Loading.LATER] and not libraries[Loading.UNKNOWN]
    code = CompanionCode(is_whole=is_whole)
    return code, Loading.LATER if is_opened_later else Loading.UNKNOWN


def _by_loading(
    wheel: WheelReader,
    package: str,
    files: NativeFiles,
    names: Collection[str],
) -> dict[Loading, frozenset[str]]:
    """Return the libraries by whether a package works without them, those first that it needs."""
    members = load_members()
    imports = read_imports(wheel, package)
    required = files.with_linked(imports.required)
    optional = files.with_linked(imports.optional) - required
    unknown = frozenset(names) - required - optional
    unknown = frozenset(name for name in unknown if not members.is_dispensable(package, name))
    later = frozenset[str]()
    if imports.is_decided and not _FOR_GPUS.search(package):
        later = unknown - files.with_linked(imports.possible)
        unknown -= later
    return {
        Loading.REQUIRED: required,
        Loading.UNKNOWN: unknown,
        Loading.LATER: later,
        Loading.OPTIONAL: frozenset(names) - required - unknown - later,
    }


def _is_for_one_chip(code: CompanionCode) -> bool:
    if not code.architectures:
        return False
    return all(map(_OF_ONE_CHIP, code.architectures))


def _beside_some_torch(needs: Needs, files: NativeFiles, loading: Loading) -> Needs:
    """Return what libraries need; not which torch, if each of them may be for another one."""
    linked = [path for path, elf in files.elves.items() if is_linked_to_torch(elf)]
    # Which of addon_torch24 and addon_torch25 is opened, if any, is decided where it is opened.
    is_chosen_later = loading is Loading.LATER and len(set(map(without_numbers, linked))) < len(
        linked
    )
    if len(linked) > 1 and (needs.torch.fits == () or is_chosen_later):
        return replace(needs, torch=TorchNeeds("unknown"))
    return needs


def read_companion(
    wheel: WheelReader,
    package: str,
    cuda: str | None = None,
    *,
    whole: bool = False,
) -> CompanionCode:
    """Return the GPU code of a wheel.

    Args:
        wheel: The wheel.
        package: Its package, by its normalized name.
        cuda: The CUDA of the torch that it runs beside, ``12.8``.
        whole: Whether to read the library that answers to its end.

    Raises:
        WheelError: if it is malformed.
    """
    members = load_members()
    answering = members.answering(package, wheel.members)
    if answering:
        library: str | None = answering[0][0]
        if members.has_runtimes_apart(package):
            library = _for_cuda(answering, cuda)
        if library is None:
            return CompanionCode()
        return _read_code(wheel, library, whole=whole)
    libraries = []
    for name in wheel.members:
        is_library = _LIBRARY.fullmatch(name)
        if is_library and not members.is_optional(package, name):
            libraries.append(name)
    return _read_largest(wheel, libraries, most=math.inf if whole else _MOST, whole=whole)


def _read_largest(
    wheel: WheelReader,
    libraries: Iterable[str],
    *,
    most: float = math.inf,
    whole: bool = False,
) -> CompanionCode:
    """Return the GPU code of the largest library that has any in its first ``most`` bytes; ``whole``: of its module."""
    is_whole = True
    found = CompanionCode()
    # What a wheel bundles of others has code for other GPUs than what it is made of.
    largest_first = sorted(
        libraries,
        key=lambda name: (_BUNDLED in name, -wheel.members[name].file_size, name),
    )
    for name in largest_first if whole else largest_first[:_TRIED]:
        if found.member and _module(found.member) != _module(name):
            continue
        code = _read_code(
            wheel,
            name,
            most,
            whole=whole,
        )
        if code.architectures and not whole:
            return code
        is_whole = is_whole and code.is_whole
        found = found.with_library(code)
    return replace(found, is_whole=is_whole)


def _module(library: str) -> str:
    return library.partition("/")[0]


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


def _read_code(
    wheel: WheelReader,
    name: str,
    most: float = math.inf,
    *,
    whole: bool = False,
) -> CompanionCode:
    """Return the GPU code in the first ``most`` bytes of a library."""
    opened = set[str]()
    size = wheel.members[name].file_size
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
