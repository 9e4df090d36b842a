"""Needs of a wheel's native code: libraries, CUDA, glibc, and torch."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from mmap import mmap
from pathlib import Path
from posixpath import basename
from typing import Annotated, Literal, NamedTuple

from gpuinstall.base.codec import create_choice_parser, read_object
from gpuinstall.base.requirement import Requirement
from gpuinstall.base.values import Value
from gpuinstall.base.versions import version_key
from gpuinstall.wheels.elf import X86_64, Elf, read_elf
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.torch_abi import (
    FIRST_STABLE,
    Exports,
    load_exports,
    select_ordinary_names,
    select_torch_names,
)
from gpuinstall.wheels.wheel_reader import WheelReader

TorchKind = Literal["stable", "ordinary", "none", "unknown"]

RUNTIME = "libcudart."
"""The beginning of the names of CUDA's runtime."""
_NUMBER = re.compile(r"\d+")
_NATIVE = re.compile(r"[\w./+-]{1,250}\.(so(\.[\w.]+)?|pyd|dll)", re.ASCII)
_BEGINNING = 256 << 10
"""Compressed bytes that suffice for the tables of unpatched libraries."""
_SMALL = 10 << 20
"""Compressed size up to which a library is read whole if necessary."""
_SMALL_INFLATED = 48 << 20
_LARGE = 40 << 20
"""Compressed bytes to read of larger libraries with tables at the end.

patchelf moves the tables to the end (torch-projectors 0.13.1, 12 MB).
"""
_LARGE_INFLATED = 512 << 20
_MAX_LIBRARIES = 32
"""The maximum number of libraries to read in a wheel, largest first."""
_FATBIN_SECTION = b"\0.nv_fatbin\0"
"""The name of the section with GPU code."""
_HASHED = re.compile(r"[-.][0-9a-f]{8}(?=\.so)")
"""The hash in the name of a library that auditwheel bundles."""

_OF_CUDA = re.compile(r"nvidia-[\w-]+-cu(1[1-9])", re.ASCII)
_NAME_CUDA = re.compile(r"-cu(?:da-?)?(1[0-9])\d?x?(?:-|$)", re.ASCII)
_LABEL_CUDA = re.compile(r"(?<![a-z])cu(?:da)?(1[0-9])(?:\.?\d)?(?!\d)", re.ASCII)

_OF_TORCH = re.compile(r"lib(torch|c10)(_\w+)?\.so")
_OF_CUDA_TORCH = re.compile(r"lib(torch|c10)_cuda\b")
_OLDER_STRING = re.compile(rb"Ss(?![a-z])")
"""Pre-C++11 std::string in a mangled name (Itanium C++ ABI, 5.1.10)."""
_OF_WINDOWS = re.compile(r"(?:cudart|cublas|cublasLt|nvrtc)64_(1\d)")
"""Library names on Windows, such as cudart64_12 and nvrtc64_130_0."""
_RUNTIME_OF_WINDOWS = re.compile(rb"(?:cudart|cublas|cublasLt)64_\d{2,3}\.dll")
"""Library names in the strings or the import table of a DLL."""


class SharedLibrary(NamedTuple):
    """A shared library and its package: a row of ``libraries.toml``."""

    package: str
    cuda: int | None = None
    """The CUDA major minus the library's major version, if constant."""
    plain_from: int = 1000
    """The first CUDA major whose package has no suffix, such as ``-cu12``."""
    versioned: bool = False
    """Whether the package and the library have the same major version."""

    def package_for(self, cuda: int | None) -> str | None:
        """Return the library's package for a CUDA major, if known."""
        if "{cuda}" not in self.package:
            return self.package
        if cuda is None:
            return None
        if cuda >= self.plain_from:
            return self.package.replace("-cu{cuda}", "")
        return self.package.format(cuda=cuda)


class SharedLibraries(NamedTuple):
    """The contents of ``libraries.toml``, with patterns of library names."""

    rows: Mapping[str, SharedLibrary]
    of_the_driver: re.Pattern[str]
    of_the_system: re.Pattern[str]
    plugins: re.Pattern[str]
    opened: re.Pattern[bytes]

    def row(self, library: str) -> SharedLibrary | None:
        """Return the row of a library such as ``libcudart.so.12``.

        The hash in the name of a library that auditwheel bundled is ignored.
        """
        stem = _HASHED.sub("", library).partition(".so")[0]
        if stem in self.rows:
            return self.rows[stem]
        for name, row in self.rows.items():
            if stem.startswith(f"{name}_"):
                return row
        return None

    def is_foreign(self, library: str, package: str) -> bool:
        """Return whether another package provides a library."""
        row = self.row(library)
        if row is None:
            return False
        return package not in {row.package_for(cuda) for cuda in (11, 12, 13)}

    def cuda(self, library: str) -> int | None:
        """Return the CUDA major in the name of a library, if any."""
        windows = _OF_WINDOWS.match(library)
        if windows:
            return int(windows[1])
        # CUDA 10 and CUDA 11 both contain a library with this name.
        if library == "libcufft.so.10":
            return None
        row = self.row(library)
        major = _parse_major(library)
        if row and row.cuda is not None and major is not None:
            return major + row.cuda
        return None

    def is_provided(self, library: str, version: str) -> bool:
        """Return whether a library's package provides it at a version."""
        row = self.row(library)
        major = _parse_major(library)
        is_compared = row is not None and row.versioned and major is not None
        return not is_compared or version.partition(".")[0] == str(major)

    def cuda_majors(self, libraries: Iterable[str]) -> set[int]:
        """Return the CUDA majors in the names of libraries."""
        majors = map(self.cuda, libraries)
        return {major for major in majors if major is not None}

    def find_opened(self, data: bytes | mmap) -> set[str]:
        """Return the libraries that the strings of a file mention."""
        names = self.opened.findall(data)
        names += _RUNTIME_OF_WINDOWS.findall(data)
        return {name.decode() for name in names}


def _parse_major(library: str) -> int | None:
    """Return the major version in a name such as ``libcudnn.so.9``, if any."""
    version = re.search(r"\.so\.(\d+)(\.|$)", library)
    return int(version[1]) if version else None


@cache
def load_libraries() -> SharedLibraries:
    """Load ``libraries.toml``."""
    import tomli

    text = Path(__file__).with_name("libraries.toml").read_text("utf-8")
    table = tomli.loads(text)
    rows = {}
    for row in table["libraries"]:
        rows[row["name"]] = read_object(SharedLibrary, row)
    names = "|".join(sorted(rows, key=len, reverse=True)).encode()
    # Starting every alternative with the same byte makes the search ten times as fast.
    opened = rb"\0((?:%b)(?:_[a-z_]+)?\.so\.\d[\d.]{0,15})(?=\0)" % names
    return SharedLibraries(
        rows,
        of_the_driver=re.compile(table["of_the_driver"]),
        of_the_system=re.compile(table["of_the_system"]),
        plugins=re.compile(table["plugins"]),
        opened=re.compile(opened),
    )


class TorchNeeds(Value):
    """Releases of torch that can load the code of a wheel."""

    kind: Annotated[
        TorchKind, create_choice_parser("stable", "ordinary", "none", "unknown")
    ] = "none"
    """The interface of torch that the code uses.

    The value ``unknown`` means that an unread library may use torch.
    """
    oldest: str | None = None
    """The oldest known release that loads ``stable`` code."""
    fits: tuple[str, ...] = ()
    """The minor releases in ``judged`` that load ``ordinary`` code.

    If ``judged`` is empty, these are the patch releases in the names of libraries.
    """
    judged: tuple[str, ...] = ()
    is_older_abi: bool = False
    """Whether the code's symbols use the pre-C++11 ABI."""
    is_part: bool = False
    """Whether an unread library may use more of torch's symbols."""

    @property
    def is_linked(self) -> bool:
        """Whether the code uses torch."""
        return self.kind in {"stable", "ordinary"}

    @property
    def is_known(self) -> bool:
        """Whether reading more of the wheel cannot change the result."""
        return self.kind != "unknown" and not self.is_part

    @property
    def torches(self) -> str:
        """The compatible releases of torch, for messages."""
        if self.kind == "stable" and self.oldest:
            return f"torch {self.oldest} and newer"
        if not self.fits:
            return "no known torch version"
        first = self.fits[0]
        last = self.fits[-1]
        abi = " with the older C++ ABI" if self.is_older_abi else ""
        to_last = "" if first == last else f" to {last}"
        return f"torch {first}{to_last}{abi}"

    def verdict(self, minor: str) -> bool | None:
        """Return whether a minor release of torch loads the code, if known."""
        if self.kind == "none":
            return True
        if self.kind == "stable" and self.oldest:
            fits = version_key(minor) >= version_key(self.oldest)
        elif minor in self.judged:
            fits = minor in self.fits
        else:
            return None
        return None if fits and self.is_part else fits


class Needs(Value):
    """Needs of the native code of a wheel."""

    needs: tuple[str, ...] = ()
    """The linked libraries that neither the wheel nor every Linux contains."""
    common: tuple[str, ...] = ()
    """The linked libraries that every library of the wheel needs."""
    opens: tuple[str, ...] = ()
    """The libraries that only the strings of the code mention."""
    cudas: tuple[int, ...] = ()
    """The CUDA majors that the code is built with; empty if unknown."""
    linked: str | None = None
    """The largest library that links to CUDA."""
    glibc: str | None = None
    """The minimum glibc version, from the symbols or torch's wheel tags."""
    torch: TorchNeeds = TorchNeeds("unknown")
    """The releases of torch that can load the code."""
    has_runtime: bool = False
    """Whether the wheel bundles or statically links a CUDA runtime."""

    @property
    def is_for_gpus(self) -> bool:
        """Whether the code links to torch or CUDA."""
        return self.torch.is_linked or self.has_runtime or bool(self.cudas)


def built_cuda_majors(
    linked: Collection[int],
    opened: Collection[str],
    of_ptx: Collection[int],
) -> tuple[int, ...]:
    """Return the CUDA majors that a wheel was built with, if known.

    Args:
        linked: The CUDA majors of the linked libraries, which have priority.
        opened: The libraries that strings in the code mention. Only Windows wheels use
            these names, because nothing else identifies the runtime.
        of_ptx: The CUDA majors of the PTX.
    """
    windows = [library for library in opened if library.endswith(".dll")]
    majors = linked or load_libraries().cuda_majors(windows) or of_ptx
    return tuple(sorted(majors))


def isa_toolkit(isa: tuple[int, int]) -> tuple[int, int]:
    """Return the oldest CUDA with a compiler for a PTX ISA version.

    CUDA 11 emits ISA 7, CUDA 12 emits ISA 8, and CUDA 13 emits ISA 9. The minors are
    equal, except that CUDA 12.6 emits ISA 8.5, too. Source: NVIDIA, PTX ISA, release
    notes, table of versions (2026-11-20).
    """
    major, minor = isa
    return min(max(major, 6) + 4, 13), minor + (major == 8 and minor > 5)


def find_pinned_cuda(
    requirements: Iterable[Requirement], environment: Mapping[str, str]
) -> int | None:
    """Return the only CUDA major of required NVIDIA packages, if any.

    Args:
        requirements: The requirements.
        environment: The marker values of the target.
    """
    majors = set()
    for one in requirements:
        library = _OF_CUDA.fullmatch(one.name)
        if library and one.applies_in(environment):
            majors.add(int(library[1]))
    return majors.pop() if len(majors) == 1 else None


def parse_name_cuda(package: str) -> int | None:
    """Return the CUDA major in a name such as ``cupy-cuda13x``, if any."""
    name = _NAME_CUDA.search(package)
    return int(name[1]) if name else None


def parse_label_cuda(label: str | None) -> int | None:
    """Return the CUDA major in a label such as ``cu128`` or ``pt29cu13``."""
    found = set(_LABEL_CUDA.findall(label or ""))
    return int(found.pop()) if len(found) == 1 else None


def rename_for_cuda(package: str, major: int) -> str | None:
    """Replace the CUDA major in a package's name, or return None."""
    name = _NAME_CUDA.search(package)
    if name is None:
        return None
    return f"{package[: name.start(1)]}{major}{package[name.end(1) :]}"


class TableCache:
    """Cache of the dynamic tables of the libraries in a wheel."""

    def __init__(self, wheel: WheelReader) -> None:
        self.wheel = wheel
        self._read: dict[str, tuple[Elf | None, set[str]]] = {}
        self._large = _LARGE
        self.has_code = False
        """Whether a library that was read whole has GPU code in a section."""

    def read(self, path: str, *, whole: bool) -> tuple[Elf | None, set[str]]:
        """Return a library's tables and the libraries in its strings.

        Only the beginning of a library is read, unless a small library has no tables
        there.

        Args:
            path: The path of the library in the wheel.
            whole: Whether to read a large library whole, too.
        """
        member = self.wheel.members[path]
        size = member.compress_size
        data: bytes | mmap = b""
        elf, opened = self._read.get(path, (None, set()))
        if path not in self._read and size > _BEGINNING:
            data = self.wheel.read_beginning(path, _BEGINNING)
            elf = read_elf(data, whole=False)
        may_read = size <= _SMALL and member.file_size <= _SMALL_INFLATED
        may_read &= path not in self._read
        most = min(self._large, self.wheel.bytes_left)
        if whole and size <= most and member.file_size <= _LARGE_INFLATED:
            may_read = True
        if elf is None and may_read:
            # If the disk is full, the library remains unread.
            with suppress(OSError):
                data = self.wheel.read_whole(path)
                elf = read_elf(data, whole=True)
                self._large -= size
                self.has_code |= data.find(_FATBIN_SECTION) >= 0
        if data:
            opened = load_libraries().find_opened(data)
        self._read[path] = elf, opened
        return elf, opened


def read_needs(
    tables: TableCache,
    libraries: Iterable[str],
    *,
    to_the_end: bool = False,
    is_all: bool = True,
    with_bundled: bool = True,
) -> tuple[Needs, Collection[str]]:
    """Read the needs of libraries and of the bundled libraries they load.

    Args:
        tables: The tables of the wheel.
        libraries: The paths of the libraries in the wheel.
        to_the_end: Whether to read large libraries whole if their beginning has no
            tables.
        is_all: Whether ``libraries`` contains all deciding libraries.
        with_bundled: Whether to read the bundled libraries.

    Returns:
        The needs, and the paths of all these libraries.

    Raises:
        WheelError: The wheel is malformed.
    """
    wheel = tables.wheel
    shared = load_libraries()
    native = filter(_NATIVE.fullmatch, wheel.members)
    by_name = {basename(path): path for path in native}
    deciding = {*libraries}
    waiting = wheel.sort_by_size(deciding)
    # The value is None for a library that was not read or has no valid tables.
    elves = dict[str, Elf | None].fromkeys(waiting)
    opened = set[str]()
    for number, path in enumerate(waiting):
        if number == _MAX_LIBRARIES:
            break
        elf, strings = tables.read(path, whole=to_the_end)
        elves[path] = elf
        opened |= strings
        for need in elf.needs if elf else ():
            library = by_name.get(need)
            if with_bundled and library and library not in elves:
                elves[library] = None
                # The outer loop also reads this library.
                waiting.append(library)
    read = {path: elf for path, elf in elves.items() if elf}
    needs = set[str]()
    for elf in read.values():
        for need in elf.needs:
            # In a beginning, any other name may be the library's own.
            if elf.whole or shared.row(need) or _OF_TORCH.match(need):
                needs.add(need)
    users = [path for path, elf in read.items() if shared.cuda_majors(elf.needs)]
    loaded = [read[path].needs for path in deciding & read.keys()]
    glibc = max((elf.required_glibc() for elf in read.values()), default=())
    # Bundled libraries of CUDA never use torch.
    deciding.update(path for path in elves if not shared.row(basename(path)))
    is_whole = is_all and deciding <= read.keys()
    found = Needs(
        needs=find_external_libraries(needs, wheel),
        common=find_external_libraries(needs.intersection(*loaded), wheel),
        opens=tuple(sorted(opened)),
        cudas=tuple(sorted(shared.cuda_majors(needs))),
        # Messages name CUDA's runtime with this library.
        linked=max(
            users,
            key=lambda path: any(one.startswith(RUNTIME) for one in read[path].needs),
            default=None,
        ),
        glibc=".".join(map(str, glibc)) or None,
        torch=_torch_needs(read, is_whole=is_whole),
        has_runtime=any(map(_has_runtime, read.values())),
    )
    return found, elves


def _has_runtime(elf: Elf) -> bool:
    """Return whether the CUDA runtime is statically linked.

    The CUDA runtime uses the rare functions ``nftw`` and ``mkfifo``. In a sample of
    1,297 libraries in 454 wheels, 184 of the 188 libraries with GPU code and without
    libcudart use both. Among libraries without GPU code, only libcudart and parts of
    CUDA programs use both.
    """
    return b"\0nftw\0" in elf.strings and b"\0mkfifo\0" in elf.strings


def find_external_libraries(
    libraries: Iterable[str],
    wheel: WheelReader,
) -> tuple[str, ...]:
    """Return the libraries that neither a wheel nor every Linux contains."""
    of_the_system = load_libraries().of_the_system
    # The loader uses the SONAME: libcudart.so.11.8.89 is loaded as libcudart.so.11.0.
    own = {_stem_and_major(path) for path in wheel.members}
    own |= {(stem, "") for stem, _ in own}
    return tuple(
        library
        for library in sorted(libraries)
        if _stem_and_major(library) not in own and not of_the_system.fullmatch(library)
    )


def library_stem(path: str) -> str:
    """Return the path that variants of a library and other releases share."""
    return _NUMBER.sub("", _HASHED.sub("", path))


def _stem_and_major(library: str) -> tuple[str, str]:
    """Split ``libcudart-d0da41ae.so.11.8.89`` into ``libcudart``, ``11``."""
    stem, _, version = _HASHED.sub("", basename(library)).partition(".so")
    return stem, version.lstrip(".").partition(".")[0]


def _torch_needs(
    libraries: Mapping[str, Elf],
    *,
    is_whole: bool,
) -> TorchNeeds:
    """Return the releases of torch with which the libraries can be loaded.

    Args:
        libraries: The libraries, by path.
        is_whole: Whether all deciding libraries were read.
    """
    elves = libraries.values()
    used = set[bytes]().union(*(elf.undefined_symbols() for elf in elves))
    names = select_torch_names(used)
    if names:
        names = names.difference(*(elf.defined_symbols() for elf in elves))
    ordinary = select_ordinary_names(names)
    # The table of exports is for x86-64. Stable names are the same on every processor.
    if ordinary and any(elf.machine != X86_64 for elf in elves):
        return TorchNeeds("ordinary")
    if not names:
        is_unknown = not is_whole or any(map(is_linked_to_torch, elves))
        return TorchNeeds("unknown" if is_unknown else "none")
    exports = load_exports()
    if not ordinary:
        oldest = _find_oldest_minor(exports, names)
        return TorchNeeds(
            "stable", oldest=oldest, judged=exports.minors, is_part=not is_whole
        )
    fits = _find_compatible_minors(libraries, names, exports)
    linked = [elf for elf in elves if is_linked_to_torch(elf)]
    if not fits and len(linked) > 1:
        # Each library may be built for a different torch release.
        return TorchNeeds("unknown")
    is_older_abi = any(map(_OLDER_STRING.search, ordinary))
    return TorchNeeds(
        "ordinary",
        fits=fits,
        judged=exports.minors,
        is_older_abi=is_older_abi,
        is_part=not is_whole,
    )


def _find_compatible_minors(
    libraries: Mapping[str, Elf],
    names: set[bytes],
    exports: Exports,
) -> tuple[str, ...]:
    """Return the minor releases that export the symbols of every library.

    If paths differ only in numbers, such as ``pg_2_12_0`` and ``pg_2_13_0``, only the
    library for the installed torch is loaded.
    """
    by_stem = defaultdict[str, set[str]](set)
    for path, elf in libraries.items():
        fitting = exports.compatible_minors(names.intersection(elf.undefined_symbols()))
        by_stem[library_stem(path)].update(fitting)
    common = set(exports.minors).intersection(*by_stem.values())
    return tuple(minor for minor in exports.minors if minor in common)


def is_separate_library(library: str) -> bool:
    """Return whether a library is part of neither torch nor the driver."""
    libraries = load_libraries()
    row = libraries.row(library)
    if row:
        package = row.package_for(13) or ""
        return not load_members().with_torch.fullmatch(package)
    of_the_driver = libraries.of_the_driver.fullmatch(library)
    return not (of_the_driver or _OF_TORCH.match(library))


def is_from_package(library: str) -> bool:
    """Return whether only another package can provide a library.

    The names of system libraries contain a version.
    """
    return library.endswith(".so") and is_separate_library(library)


def is_for_cuda(library: str) -> bool:
    """Return whether a library is of CUDA, its driver, or torch for CUDA."""
    libraries = load_libraries()
    row = libraries.row(library)
    if row:
        return "{cuda}" in row.package
    of_the_driver = libraries.of_the_driver.fullmatch(library)
    return bool(of_the_driver or _OF_CUDA_TORCH.match(library))


def is_linked_to_torch(elf: Elf) -> bool:
    """Return whether a library links to torch."""
    return any(map(_OF_TORCH.match, elf.needs))


def _find_oldest_minor(exports: Exports, names: set[bytes]) -> str | None:
    """Return the oldest minor release that exports all names, if any."""
    oldest = None
    fitting = exports.compatible_minors(names)
    for minor in reversed(exports.minors):
        # No release removes stable names, so older releases lack the name, too.
        if minor not in fitting or version_key(minor) < version_key(FIRST_STABLE):
            break
        oldest = minor
    return oldest
