"""What the native code of a wheel has and needs: the libraries that decide whether its package runs."""

from __future__ import annotations

import re
from contextlib import closing
from posixpath import basename
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.values import Value
from gpuinstall.wheels.gpu_code import read_fatbins
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import (
    Needs,
    TorchNeeds,
    cuda_of_isa,
    from_outside,
    load_libraries,
    own_cudas,
    read_needs,
)
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gpuinstall.wheels.wheel_reader import WheelReader

_LIBRARY = re.compile(r"[\w./+-]{1,250}\.(so(\.\d+)*|dll|pyd)", re.ASCII)
_CUDA_IN_NAME = re.compile(r"-(gpu|cu(da)?\d*x?)(?=-|$)", re.ASCII)
"""What the name of a package says of its code, and that of its module does not."""
_DATA = re.compile(r"[^/]+\.data/(purelib|platlib)/")
"""Folders whose files are installed beside the others."""
_BUNDLED = ".libs/"
"""Where auditwheel puts the libraries of others."""
_RUNTIME = re.compile(r"(^|/)(lib)?cudart[\w.-]*\.(so|dll)", re.ASCII)
_CUDA_FOLDER = re.compile(r"(?:^|/)cu(?:da)?[-_]?(1[1-9])(?:\.?\d)?/", re.ASCII)
_CODE_ALONE = (".fatbin", ".ptx")
_OF_NVRTC = re.compile(rb"\0(nvrtcGetPTX|nvrtcGetCUBIN)(?=\0)")
"""What a program that opens NVRTC by its name has it write."""
_TRIED = 4
"""Of how many libraries the beginning is read, the largest first."""
_LITTLE = 16 << 20
"""How many inflated bytes the others may have, so that they are read too: torchcodec has a library for each FFmpeg."""
_MOST = 128 << 20
"""How many inflated bytes of a library to search if nothing tells that it has GPU code."""


class LibraryCode(NamedTuple):
    """The GPU code of a library that has some."""

    library: str
    """Its path in the wheel."""
    architectures: tuple[str, ...]


class WheelFacts(Value):
    """What the native code of a wheel has and needs: all that rules are told of its bytes."""

    codes: tuple[LibraryCode, ...] = ()
    """The largest library first."""
    is_whole: bool = True
    """Whether all code that decides was read."""
    cudas: tuple[int, ...] = ()
    """The CUDA majors that its code is built with."""
    has_runtime: bool = False
    """Whether it bundles or links in a CUDA runtime."""
    linked: str | None = None
    """The largest library that is linked to CUDA's."""
    needs: tuple[str, ...] = ()
    """The libraries that its code is linked to and does not bring."""
    opens: tuple[str, ...] = ()
    """The libraries that a string alone names."""
    glibc: str | None = None
    torch: TorchNeeds = TorchNeeds()
    writes_ptx: bool = False
    """Whether it has NVRTC write PTX while it runs, and no machine code."""


class _Code:
    """The GPU code of some libraries, as it is read of one after the other."""

    def __init__(self, *, is_whole: bool) -> None:
        self.codes: list[LibraryCode] = []
        self.is_whole = is_whole
        self.has_all = True
        """Whether each library was read at least in part."""
        self.isas = set[int]()
        """The major ISA versions of their PTX."""
        self.opens = set[str]()
        self.asked = set[bytes]()
        """The functions of NVRTC that strings name."""


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
        # Of its libraries, some for each CUDA, only those of this one count.
        libraries = _for_cuda(answering, cuda)
        code = _read_code(wheel, libraries, whole=whole)
        return _facts(wheel, code, read_needs(wheel, libraries))
    deciding = deciding_libraries(package, wheel.members)
    needs = read_needs(wheel, deciding, to_the_end=whole)
    brings_runtime = any(map(_is_bundled_runtime, wheel.members))
    if not (needs.is_for_gpus or brings_runtime or may_have_code):
        libraries = []
    elif answering:
        libraries = [answering[0][0]]
    else:
        libraries = _libraries_with_code(wheel, deciding, needs, whole=whole)
    return _facts(wheel, _read_code(wheel, libraries, whole=whole), needs)


def _libraries_with_code(
    wheel: WheelReader,
    deciding: Collection[str],
    needs: Needs,
    *,
    whole: bool,
) -> list[str]:
    """Return the files of a wheel that may have GPU code which decides."""
    # Some have no library, and hand the driver files with code (cpm-kernels 1.0.11).
    own = {*deciding} or {one for one in wheel.members if one.endswith(_CODE_ALONE)}
    # What auditwheel calls a library of others may be the package's own.
    shared = load_libraries()
    for name in needs.paths:
        if not shared.row(basename(name)):
            own.add(name)
    if whole:
        # A part that it does without may show that a GPU is served, never that it is not.
        modules = {*map(_module, deciding)}
        for name in filter(_LIBRARY.fullmatch, wheel.members):
            if _BUNDLED not in name and _module(name) in modules:
                own.add(name)
    return [*own]


def read_tables(wheel: WheelReader, package: str) -> WheelFacts:
    """Return what a few libraries of a wheel need: the one that answers for the package, else its largest own ones.

    Raises:
        WheelError: if the wheel is malformed.
    """
    members = load_members()
    unread = _Code(is_whole=False)
    if members.has_runtimes_apart(package):
        return _facts(wheel, unread, Needs())
    names = [match[0] for match in members.answering(package, wheel.members)]
    names = names or deciding_libraries(package, wheel.members)
    smallest_first = sorted(names, key=lambda name: wheel.members[name].file_size)
    tried = smallest_first[-_TRIED:]
    needs = read_needs(wheel, tried, is_all=len(tried) == len(names))
    return _facts(wheel, unread, needs)


def _is_bundled_runtime(name: str) -> bool:
    """Whether a file is a library of CUDA that a wheel brings for its own, as auditwheel bundles them."""
    return _BUNDLED in name and load_libraries().cuda(basename(name)) is not None


def _facts(wheel: WheelReader, code: _Code, needs: Needs) -> WheelFacts:
    """Return what the code of libraries says with what they need."""
    # A library that auditwheel renamed still has its old name among its strings.
    opened = from_outside(needs.opened | code.opens, wheel)
    opens = sorted({*opened}.difference(needs.libraries))
    # PTX counts only if all libraries agree.
    of_ptx = {*map(cuda_of_isa, code.isas)} if code.has_all else set()
    cudas = _cudas_of_folders(wheel.members)
    if not cudas:
        cudas = own_cudas(needs, opens, of_ptx)
    return WheelFacts(
        codes=tuple(code.codes),
        is_whole=code.is_whole,
        cudas=cudas,
        has_runtime=needs.has_runtime or any(map(_RUNTIME.search, wheel.members)),
        linked=needs.linked,
        needs=needs.libraries,
        opens=tuple(opens),
        glibc=needs.glibc,
        torch=needs.torch,
        writes_ptx=needs.writes_ptx or code.asked == {b"nvrtcGetPTX"},
    )


def _cudas_of_folders(names: Iterable[str]) -> tuple[int, ...]:
    """Return the CUDA majors of folders, if there are several."""
    majors = set[int]()
    for name in filter(_LIBRARY.fullmatch, names):
        majors.update(map(int, _CUDA_FOLDER.findall(name)))
    return tuple(sorted(majors)) if len(majors) > 1 else ()


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
        if _BUNDLED not in name and not shared.is_foreign(basename(name), package)
    ]
    # Some are made of nothing but plugins, one for each FFmpeg.
    own = [name for name in own if not shared.plugins.search(name)] or own
    modules = {
        package.replace("-", "_"),
        _CUDA_IN_NAME.sub("", package).replace("-", "_"),
    }
    namesakes = [name for name in own if _module(name).lower() in modules]
    return namesakes or own or libraries


def _module(library: str) -> str:
    """Return the top-level module of a library, ``_C`` of ``_C.cpython-311-x86_64-linux-gnu.so``."""
    first, _, _ = _DATA.sub("", library).partition("/")
    return first.partition(".")[0]


def _for_cuda(
    libraries: Sequence[re.Match[str]],
    cuda: str | None,
) -> list[str]:
    """Return those of this CUDA, else of the nearest below it, else of the nearest above; of its major if there is one."""
    version = re.match(r"([0-9]{1,3})\.([0-9])", cuda or "")
    if version is None:
        return []
    major = int(version[1])
    number = 10 * major + int(version[2])

    def distance(library: re.Match[str]) -> tuple[bool, bool, int]:
        other = int(library["cuda"])
        return other // 10 != major, other > number, abs(other - number)

    least = min(map(distance, libraries), default=None)
    return [library[0] for library in libraries if distance(library) == least]


def _read_code(
    wheel: WheelReader,
    libraries: Collection[str],
    *,
    whole: bool = False,
) -> _Code:
    """Return the GPU code of libraries, the largest first: to the end of each, or not ``whole`` of their beginnings.

    Raises:
        WheelError: if it is malformed.
    """
    largest_first = sorted(
        libraries, key=lambda name: (-wheel.members[name].file_size, name)
    )
    sizes = (wheel.members[name].file_size for name in largest_first[_TRIED:])
    if not whole and sum(sizes) > _LITTLE:
        largest_first = largest_first[:_TRIED]
    code = _Code(is_whole=len(largest_first) == len(libraries))
    code.has_all = code.is_whole
    for name in largest_first:
        _read_library(wheel, name, code, whole=whole)
    return code


def _read_library(
    wheel: WheelReader,
    name: str,
    code: _Code,
    *,
    whole: bool,
) -> None:
    """Add the GPU code of a library; not ``whole``: of its beginning, if nothing tells that it has any."""
    left = wheel.members[name].file_size
    unread = 0 if whole else max(left - _MOST, 0)

    def pieces() -> Iterator[bytes]:
        nonlocal left
        try:
            for piece in stream:
                left -= len(piece)
                code.opens.update(load_libraries().opened_by(piece))
                code.asked.update(_OF_NVRTC.findall(piece))
                yield piece
                if 0 < left <= unread:
                    return
        except WheelError as error:
            # What was read until then counts: it is the same each time.
            if error.code != "wheel-too-large":
                raise

    with closing(wheel.stream(name)) as stream:
        found = read_fatbins(pieces(), whole=whole)
    code.is_whole &= found.is_whole and left == 0
    if found.isa:
        code.isas.add(found.isa)
    if found.architectures:
        code.codes.append(LibraryCode(name, found.architectures))
