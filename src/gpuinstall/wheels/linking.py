"""Whether the libraries of an environment can be loaded, as the loader would find out, without loading any.

A library is looked for where its own paths say, then among those that torch has loaded before (``torch/lib`` and
``nvidia/*/lib``), then where the system looks. Symbols are looked at where a library is linked to torch's.
"""

from __future__ import annotations

import mmap
import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from gpuinstall.finding import Reason, Rejection
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.elf import Elf, read_elf
from gpuinstall.wheels.needs import OF_TORCH, load_libraries
from gpuinstall.wheels.torch_abi import ordinary_names, stable_names

_NATIVE = re.compile(r".+\.so(\.[\w.]+)?")
_PRELOADED = re.compile(r"torch/lib|nvidia/[\w/]+/lib")
_OF_PYTHON = re.compile(r"libpython3[\w.]*\.so[\w.]*")
_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_CACHE = Path("/etc/ld.so.cache")
_CACHED = re.compile(
    rb"/([!-.0-~]+)\0"
)  # the last parts of its paths; the table before them is binary


class InstalledLibrary(NamedTuple):
    """A library of an environment."""

    path: str
    """Its path from the folder of packages."""
    package: str
    elf: Elf
    opened: tuple[str, ...] = ()
    """The libraries that its strings name."""

    @property
    def folder(self) -> str:
        """The folder that it lies in."""
        return posixpath.dirname(self.path)

    @property
    def cuda_majors(self) -> set[int]:
        """The CUDA majors of the libraries that it needs."""
        majors = map(load_libraries().cuda, self.elf.needs)
        return {major for major in majors if major is not None}


_MESSAGES = {
    "missing-library": "needs {}, which is neither in the environment nor on the system",
    "missing-symbol": "uses {}, which this torch does not have",
    "other-cuda": "is built with CUDA {}",
    "twice-there": "is in {} too, and only one of them is used",
    "glibc-too-old": "requires glibc {}, which is newer than this system's",
}


@dataclass(frozen=True)
class LinkFault(Rejection[InstalledLibrary]):
    """A library that cannot be loaded as it is."""

    name: str
    """What it lacks or conflicts with."""
    provider: str | None = None
    """The package that has what it lacks, as far as that is known."""
    is_certain: bool = True
    """Whether it matters: a library may do without what only a string names."""

    @classmethod
    def of(
        cls,
        library: InstalledLibrary,
        code: str,
        name: str,
        *,
        provider: str | None = None,
        is_certain: bool = True,
    ) -> LinkFault:
        """Return a fault with its sentence."""
        reason = Reason(code, f"{library.path} of {library.package} {_MESSAGES[code].format(name)}")
        return cls(library, reason, name, provider, is_certain)


@dataclass(frozen=True)
class LinkEnvironment:
    """What the loader finds in an environment and on its system."""

    libraries: Sequence[InstalledLibrary]
    system: Collection[str]
    glibc: tuple[int, ...] | None = None

    @cached_property
    def owners(self) -> dict[str, set[str]]:
        """The packages of each path, and of each name that torch has loaded before anything else is looked for."""
        owners = defaultdict[str, set[str]](set)
        for library in self.libraries:
            owners[library.path].add(library.package)
            if _PRELOADED.fullmatch(library.folder):
                owners[posixpath.basename(library.path)].add(library.package)
                owners[library.elf.soname or library.path].add(library.package)
        return dict(owners)

    @cached_property
    def torch_cuda(self) -> int | None:
        """The CUDA major of torch; None if its libraries name none, or several."""
        majors = set[int]().union(
            *(library.cuda_majors for library in self.libraries if library.package == "torch")
        )
        return majors.pop() if len(majors) == 1 else None

    @cached_property
    def torch_names(self) -> set[bytes]:
        """The symbols that torch's own libraries have for others."""
        return set[bytes]().union(
            *(
                library.elf.defined()
                for library in self.libraries
                if library.path.startswith("torch/lib/")
            )
        )

    def provides(self, name: str, library: InstalledLibrary) -> bool:
        """Whether the loader finds a library by its name if ``library`` requests it."""
        if name in self.owners or name in self.system:
            return True
        for path in library.elf.paths:
            folder = path.replace("${ORIGIN}", library.folder).replace("$ORIGIN", library.folder)
            if posixpath.normpath(f"{folder}/{name}") in self.owners:
                return True
        return False


def link_faults(
    libraries: Sequence[InstalledLibrary],
    system: Collection[str],
    glibc: tuple[int, ...] | None = None,
) -> list[LinkFault]:
    """Return what keeps the libraries of an environment from loading; ``system`` are the names that the system has."""
    environment = LinkEnvironment(libraries, system, glibc)
    return [
        fault for library in libraries for rule in _RULES for fault in rule(library, environment)
    ]


def _missing_libraries(
    library: InstalledLibrary, environment: LinkEnvironment
) -> Iterator[LinkFault]:
    """Yield the libraries that the loader would look for and not find."""
    shared = load_libraries()
    for name in (*library.elf.needs, *library.opened):
        if environment.provides(name, library):
            continue
        if _OF_PYTHON.fullmatch(name) or shared.of_the_driver.fullmatch(name):
            continue
        row = shared.row(name)
        cuda = next(iter(library.cuda_majors), environment.torch_cuda or shared.cuda(name))
        yield LinkFault.of(
            library,
            "missing-library",
            name,
            provider=row.package_for(cuda) if row else None,
            is_certain=_is_certain(library, name),
        )


def _is_certain(library: InstalledLibrary, name: str) -> bool:
    """Whether a library that is missing matters."""
    if load_libraries().plugins.search(library.path):  # it is loaded on demand
        return False
    if name not in library.opened:
        return True
    # A name that occurs as a string alone may never be opened, but where it is known that it is.
    must_open = load_members().must_open.get(library.package)
    return must_open is not None and must_open.fullmatch(name) is not None


def _other_cuda(library: InstalledLibrary, environment: LinkEnvironment) -> Iterator[LinkFault]:
    """Yield a library built with a CUDA major that is not torch's: one process can have only one."""
    torch_cuda = environment.torch_cuda
    if torch_cuda is not None and library.cuda_majors - {torch_cuda}:
        yield LinkFault.of(
            library, "other-cuda", f"{max(library.cuda_majors)}, and torch with {torch_cuda}"
        )


def _provided_twice(library: InstalledLibrary, environment: LinkEnvironment) -> Iterator[LinkFault]:
    """Yield a library that another package has too, at its path or by the name that both are loaded by."""
    packages = set(environment.owners[library.path])
    if library.elf.soname and _PRELOADED.fullmatch(library.folder):
        packages |= environment.owners[library.elf.soname]
    others = packages - {library.package}
    if others:
        yield LinkFault.of(library, "twice-there", min(others))


def _glibc_too_old(library: InstalledLibrary, environment: LinkEnvironment) -> Iterator[LinkFault]:
    """Yield a library that requires a newer glibc than the system's."""
    required = library.elf.newest("GLIBC")
    if environment.glibc and required and required > environment.glibc:
        yield LinkFault.of(library, "glibc-too-old", ".".join(map(str, required)))


def _missing_symbols(
    library: InstalledLibrary, environment: LinkEnvironment
) -> Iterator[LinkFault]:
    """Yield the first symbol that a library uses of torch, and neither torch nor its own package has."""
    if library.package == "torch" or not any(OF_TORCH.match(need) for need in library.elf.needs):
        return
    undefined = library.elf.undefined()
    missing = (ordinary_names(undefined) | stable_names(undefined)) - environment.torch_names
    for other in environment.libraries:
        if missing and other.package == library.package:
            missing -= other.elf.defined()
    if missing:
        yield LinkFault.of(library, "missing-symbol", min(missing).decode())


_RULES = (_missing_libraries, _other_cuda, _provided_twice, _glibc_too_old, _missing_symbols)


def read_libraries(site: Path) -> list[InstalledLibrary]:
    """Read the tables of every native library in a folder of packages; one that cannot be read is left out."""
    libraries, members = [], load_members()
    for path, package in sorted(_native_files(site)):
        with (
            suppress(OSError, ValueError),
            (site / path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            if elf := read_elf(data, whole=True):  # torch's own are loaded in its own order
                answers = not members.with_torch.fullmatch(package) and members.answering(
                    package, [path]
                )
                names = load_libraries().opened.findall(data) if answers else ()
                opened = sorted({name.decode() for name in names}.difference(elf.needs))
                libraries.append(InstalledLibrary(path, package, elf, tuple(opened)))
    return libraries


def system_libraries() -> set[str]:
    """The names of the libraries that the loader finds without being told where: those of its cache and its folders."""
    names: set[str] = set()
    with suppress(OSError):
        names |= {name.decode() for name in _CACHED.findall(_CACHE.read_bytes())}
    for folder in _FOLDERS:
        with suppress(OSError):
            names |= {file.name for file in Path(folder).iterdir()}
    return names


def _native_files(site: Path) -> Iterator[tuple[str, str]]:
    """Yield each native file that a package's record names, with the package."""
    for record in site.glob("*.dist-info/RECORD"):
        package = record.parent.name.partition("-")[0].replace("_", "-").lower()
        with suppress(OSError):
            files = (
                line.partition(",")[0] for line in record.read_text("utf-8", "replace").splitlines()
            )
            inside = (file for file in files if not file.startswith(("/", "..")))
            yield from ((file, package) for file in inside if _NATIVE.fullmatch(file))
