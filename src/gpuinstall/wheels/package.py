"""GPU code and needs of the libraries that determine whether a wheel runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from posixpath import basename
from typing import NamedTuple

from gpuinstall.base.values import asdict, replace
from gpuinstall.base.versions import version_key
from gpuinstall.wheels.gpu_code import FatbinCode, Fatbins
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import (
    Needs,
    TableCache,
    TorchNeeds,
    built_cuda_majors,
    find_external_libraries,
    isa_toolkit,
    load_libraries,
    read_needs,
)
from gpuinstall.wheels.ranges import WheelError
from gpuinstall.wheels.wheel_reader import WheelReader

_LIBRARY = re.compile(r"[\w./+-]{1,250}\.(so(\.\d+)*|dll|pyd)", re.ASCII)
_CUDA_IN_NAME = re.compile(r"-(gpu|cu(da)?\d*x?)(?=-|$)", re.ASCII)
"""The part of a package's name that its module's name omits."""
_DATA = re.compile(r"[^/]+\.data/(purelib|platlib)/")
"""Folders whose contents are installed into site-packages."""
_BUNDLED = re.compile(r"\.libs/[^/]+$")
"""Files that auditwheel bundled. Deeper ones are the package's own plugins."""
_RUNTIME = re.compile(r"(^|/)(lib)?cudart[\w.-]*\.(so|dll)", re.ASCII)
_CUDA_FOLDER = re.compile(r"(?:^|/)cu(?:da)?[-_]?(1[1-9])(?:\.?\d)?/", re.ASCII)
_PYTHON = re.compile(r"(?<=\.)(cpython-|cp|pypy)\d+t?(?=-)", re.ASCII)
_TORCH = re.compile(r"(?<=torch)[-_]?\d+(?:[._]\d+)?", re.ASCII)
"""The release of torch in a library's name, such as ``_torch24-cuda.so``."""
_TORCH_RELEASE = re.compile(r"torch_(\d+\.\d+\.\d+)\.so", re.ASCII)
_CODE_ALONE = ".fatbin"
_OF_GPUS = re.compile(r"cuda|cublas|cudnn|nccl|torch|\.fatbin|cubin", re.IGNORECASE)
"""Words in the names of files for GPUs."""
_TRIED = 4
"""The number of libraries to read in part per wheel, largest first."""
_PROGRAM = re.compile(r"(?!.*\.dist-info/)([^/]+/)*[\w+-]+", re.ASCII)
_LEAST_PROGRAM = 8 << 10
"""The minimum size of a program, unlike scripts and licenses."""
_LITTLE = 16 << 20
"""Inflated size up to which the other libraries are read, too."""


class LibraryCode(NamedTuple):
    """GPU code of one library in a wheel."""

    library: str
    """The path of the library in the wheel."""
    architectures: tuple[str, ...]
    ptx: tuple[int, int] | None = None
    """The CUDA of the oldest driver that compiles the PTX, or None."""


class WheelFacts(Needs):
    """GPU code and needs of a wheel, as input of the compatibility rules."""

    codes: tuple[LibraryCode, ...] = ()
    """The GPU code of each library, largest first; empty if unknown."""
    unread: tuple[str, ...] = ()
    """The libraries with unread GPU code that may differ from the rest."""

    @property
    def is_whole(self) -> bool:
        """Whether all GPU code that determines compatibility was read."""
        return not self.unread


CODE_LIMIT = 64 << 20
"""The maximum number of bytes of GPU code to read from one wheel."""


class PackageReader:
    """Reader of the library tables, then a part, then all GPU code of a wheel.

    Each reading step continues where the previous step stopped.
    """

    def __init__(
        self,
        wheel: WheelReader,
        package: str,
        *,
        may_have_code: bool,
        cuda: str | None = None,
    ) -> None:
        """Prepare to read the libraries that determine whether a package runs.

        Args:
            wheel: The wheel.
            package: The normalized name of the package.
            may_have_code: Whether to search for GPU code if no library is linked to CUDA.
            cuda: The CUDA version of torch.
        """
        self._wheel = wheel
        self._may_have_code = may_have_code
        self._tables = TableCache(wheel)
        self._has_runtime = any(map(_RUNTIME.search, wheel.members))
        self._code: dict[str, _LibraryReader] = {}
        self._has_sign = may_have_code or any(map(_OF_GPUS.search, wheel.members))
        members = load_members()
        # Such a package selects its library at run time.
        self._is_per_torch = has_library_per_torch(wheel.members)
        matches = members.match_libraries(package, wheel.members)
        self._is_per_cuda = package in members.per_cuda
        if self._is_per_cuda:
            matches = _select_libraries_for_cuda(matches, cuda)
        self._matched = [match[0] for match in matches]
        self._deciding = self._matched
        self._others = set[str]()
        self.programs = [*_find_programs(wheel)]
        """The programs in a wheel without libraries."""
        if not self._is_per_cuda:
            own = find_deciding_libraries(package, wheel.members)
            self._deciding = own or self.programs
            self._others.update(find_own_libraries(package, wheel.members))
            self._others.difference_update(self._deciding)
        # Some packages have files with GPU code but no library (cpm-kernels 1.0.11).
        alone = [name for name in wheel.members if name.endswith(_CODE_ALONE)]
        self._own = self._deciding or alone
        # If all libraries are optional, as in torchao, only their needs are read.
        self._linked = self._deciding or [*_list_libraries(wheel.members)]

    def read_tables(self) -> WheelFacts:
        """Read the needs of the largest libraries; raise WheelError."""
        if self._is_per_cuda:
            needs = Needs(torch=TorchNeeds())
            return self._collect_facts(needs, unread=self._deciding)
        names = self._wheel.sort_by_size(self._matched or self._linked)
        has_sign = self._has_sign
        is_all = len(names) <= _TRIED or not has_sign
        needs, _ = read_needs(
            self._tables, names[:_TRIED], is_all=is_all, with_bundled=has_sign
        )
        if self._may_use_gpus(needs) or has_sign or not needs.torch.is_known:
            return self._collect_facts(needs, unread=names or self._own)
        # Neither the names nor the largest libraries indicate GPU code.
        return self._collect_facts(needs)

    def read_code(self, *, whole: bool) -> WheelFacts:
        """Read the needs and the GPU code of the wheel; raise WheelError."""
        needs, paths = read_needs(self._tables, self._linked, to_the_end=whole)
        needs = self._add_needs_of_others(needs)
        libraries = self._wheel.sort_by_size(
            self._libraries_with_code(needs, paths, whole=whole)
        )
        unread = list[str]()
        sizes = [self._wheel.members[name].file_size for name in libraries]
        if not whole and sum(sizes[_TRIED:]) > _LITTLE:
            unread = libraries[_TRIED:]
            libraries = libraries[:_TRIED]
        if not self._code:
            self._wheel.limit_reads(CODE_LIMIT)
        # The smallest are first, so that the limit includes most of them.
        for name in reversed(libraries):
            # A library that was cached for its tables is not downloaded again.
            if name not in self._code or (whole and self._wheel.is_cached(name)):
                self._code[name] = _LibraryReader(self._wheel, name)
            self._code[name].read(whole=whole)
        return self._collect_facts(needs, libraries, unread)

    def _add_needs_of_others(self, needs: Needs) -> Needs:
        """Add what modules such as ``cupy_backends`` need of the same CUDA."""
        shared = load_libraries()
        others = set[str]()
        for name in sorted(self._others) if needs.cudas else ():
            elf, _ = self._tables.read(name, whole=False)
            others.update(filter(shared.row, elf.needs if elf else ()))
        same = [one for one in others if shared.cuda_majors([one]) <= {*needs.cudas}]
        added = find_external_libraries(same, self._wheel)
        return replace(needs, needs=tuple(sorted({*needs.needs, *added})))

    def _may_use_gpus(self, needs: Needs) -> bool:
        """Return whether the libraries need CUDA or contain GPU code."""
        return needs.is_for_gpus or self._has_runtime or self._tables.has_code

    def _libraries_with_code(
        self, needs: Needs, paths: Collection[str], *, whole: bool
    ) -> Collection[str]:
        """Return the files whose GPU code determines compatibility."""
        if self._is_per_cuda:
            return self._deciding
        if not (self._may_use_gpus(needs) or self._may_have_code):
            return ()
        if self._matched or (self._linked and not self._deciding):
            return self._matched[:1]
        members = self._wheel.members
        own = {*self._own}
        # auditwheel may bundle a library that belongs to the package itself.
        shared = load_libraries()
        own.update(name for name in paths if not shared.row(basename(name)))
        if whole:
            # An optional part can show that a GPU is supported, but not that it is unsupported.
            modules = {*map(_module_name, self._deciding)}
            for name in _list_libraries(members):
                if not _BUNDLED.search(name) and _module_name(name) in modules:
                    own.add(name)
        return own

    def _collect_facts(
        self, needs: Needs, libraries: Sequence[str] = (), unread: Sequence[str] = ()
    ) -> WheelFacts:
        """Combine the needs and the GPU code read so far."""
        if self._is_per_torch:
            needs = replace(needs, needs=(), torch=_find_named_torch(self._linked))
        wheel = self._wheel
        read = [self._code[name] for name in libraries]
        opens = {*needs.opens}.union(*(one.opens for one in read))
        # The strings of a library that auditwheel renamed still contain the old name.
        opens.intersection_update(find_external_libraries(opens, wheel))
        opens.difference_update(needs.needs)
        codes = tuple(
            LibraryCode(
                one.name,
                one.code.architectures,
                isa_toolkit(one.code.isa) if one.code.isa else None,
            )
            for one in read
            if one.code.architectures
        )
        # Use the CUDA version of PTX only if all libraries were read.
        of_ptx = {code.ptx[0] for code in codes if code.ptx and not unread}
        facts = {
            **asdict(needs),
            "codes": codes,
            "unread": (*unread, *(one.name for one in read if not one.is_read)),
            "cudas": _folder_cuda_majors(wheel.members)
            or built_cuda_majors(needs.cudas, opens, of_ptx),
            "has_runtime": needs.has_runtime or self._has_runtime,
            "opens": tuple(sorted(opens)),
        }
        return WheelFacts(**facts)


class _LibraryReader:
    """Incremental reader of one library's GPU code and strings."""

    def __init__(self, wheel: WheelReader, name: str) -> None:
        self.name = name
        self.code = FatbinCode()
        self.is_read = False
        """Whether the unread rest, if any, cannot differ from the code."""
        self.opens = set[str]()
        self._left = wheel.members[name].file_size
        self._pieces = wheel.stream(name)
        self._fatbins = Fatbins(self._collect_strings())

    def read(self, *, whole: bool) -> None:
        """Read the library until its end or until its code is certain."""
        self.code = self._fatbins.read(whole=whole)
        is_complete = self._fatbins.is_done and self._left == 0
        self.is_read = is_complete or (whole and self._fatbins.is_representative)

    def _collect_strings(self) -> Iterator[bytes]:
        """Yield a library's bytes, and collect the libraries it mentions."""
        try:
            for piece in self._pieces:
                self._left -= len(piece)
                self.opens.update(load_libraries().find_opened(piece))
                yield piece
        except WheelError as error:
            # Use the part read so far, which is the same in every run.
            if error.code != "wheel-too-large":
                raise


def _folder_cuda_majors(names: Iterable[str]) -> tuple[int, ...]:
    """Return the CUDA majors in the folder names of libraries, if several."""
    majors = set[int]()
    for name in filter(_LIBRARY.fullmatch, names):
        majors.update(map(int, _CUDA_FOLDER.findall(name)))
    return tuple(sorted(majors)) if len(majors) > 1 else ()


def find_own_libraries(package: str, names: Iterable[str]) -> list[str]:
    """Return the libraries that are neither optional nor bundled, if any."""
    members = load_members()
    shared = load_libraries()
    libraries = [
        name
        for name in _list_libraries(names)
        if not members.is_optional(package, name)
    ]
    own = [
        name
        for name in libraries
        if not _BUNDLED.search(name) and not shared.is_foreign(basename(name), package)
    ]
    # Some packages contain only plugins, such as one for each FFmpeg version.
    own = [name for name in own if not shared.plugins.search(name)] or own
    return own or libraries


def find_deciding_libraries(package: str, names: Iterable[str]) -> list[str]:
    """Return the libraries that determine whether a package runs.

    These are the libraries of the module that is named after the package or, if it has
    none, all libraries that auditwheel did not bundle. Optional libraries are excluded.

    Args:
        package: The normalized name.
        names: The paths in its wheel.
    """
    own = find_own_libraries(package, names)
    modules = {
        package.replace("-", "_"),
        remove_cuda_label(package).replace("-", "_"),
    }
    return [name for name in own if _module_name(name).lower() in modules] or own


def remove_cuda_label(package: str) -> str:
    """Return a name without its CUDA label: ``cupy`` of ``cupy-cuda12x``."""
    return _CUDA_IN_NAME.sub("", package)


def has_library_per_torch(names: Iterable[str]) -> bool:
    """Return whether libraries differ only by the torch in their names."""
    libraries = {_PYTHON.sub("", name) for name in filter(_LIBRARY.fullmatch, names)}
    return len(libraries) > len({_TORCH.sub("", name) for name in libraries})


def _find_named_torch(libraries: Iterable[str]) -> TorchNeeds:
    """Return the torch releases in names such as ``_pytorch_2.2.1.so``."""
    named = set(_TORCH_RELEASE.findall(" ".join(libraries)))
    return TorchNeeds("ordinary", fits=tuple(sorted(named, key=version_key)))


def _list_libraries(names: Iterable[str]) -> Collection[str]:
    """Return the native libraries, for one version of Python."""
    libraries = filter(_LIBRARY.fullmatch, names)
    return {_PYTHON.sub("", name): name for name in libraries}.values()


def _find_programs(wheel: WheelReader) -> Iterator[str]:
    """Yield the programs in a wheel without libraries."""
    if any(map(_LIBRARY.fullmatch, wheel.members)):
        return
    for name, member in wheel.members.items():
        is_large = member.file_size >= _LEAST_PROGRAM
        if (
            is_large
            and _PROGRAM.fullmatch(name)
            and wheel.read_beginning(name, _LEAST_PROGRAM)[:4] == b"\x7fELF"
        ):
            yield name


def _module_name(library: str) -> str:
    """Return the name of the top-level module that contains a library.

    The module of ``_C.cpython-311-x86_64-linux-gnu.so`` is ``_C``.
    """
    first, _, _ = _DATA.sub("", library).partition("/")
    return first.partition(".")[0]


def _select_libraries_for_cuda(
    libraries: Sequence[re.Match[str]],
    cuda: str | None,
) -> list[re.Match[str]]:
    """Return the libraries for a CUDA version or the nearest version."""
    if not cuda:
        return []
    number = int(cuda.replace(".", ""))

    def distance(library: re.Match[str]) -> tuple[bool, bool, int]:
        other = int(library["cuda"])
        return other // 10 != number // 10, other > number, abs(other - number)

    least = min(map(distance, libraries), default=None)
    return [library for library in libraries if distance(library) == least]
