"""Check without loading whether an environment's libraries can be loaded.

A library is searched for in the RPATH and RUNPATH of the library that needs it, then among
the libraries that torch preloads (``torch/lib`` and ``nvidia/*/lib``), then on the system.
If a library links to torch, its undefined symbols are compared with the exports of torch.
"""

from __future__ import annotations

import mmap
import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from gpuinstall.base.files import leads_outside
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.values import Value
from gpuinstall.wheels.elf import Elf, read_elf
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import is_linked_to_torch, load_libraries
from gpuinstall.wheels.torch_abi import select_torch_names

_NATIVE = re.compile(r".+\.so(\.[\w.]+)?")
_VERSIONED = re.compile(r"\.so\.\d")
_PRELOADED = re.compile(r"torch/lib|nvidia/[\w/]+/lib")
_ORIGIN = re.compile(r"\$ORIGIN|\$\{ORIGIN\}")
_OF_PYTHON = re.compile(r"libpython3[\w.]*\.so[\w.]*")
_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_CACHE = Path("/etc/ld.so.cache")
# The file names in the paths of the cache. A binary table precedes the paths.
_CACHED = re.compile(rb"/([!-.0-~]+)\0")


class InstalledLibrary(NamedTuple):
    """A native library that is installed in an environment."""

    path: str
    """The path relative to site-packages."""
    package: str
    elf: Elf
    opened: tuple[str, ...] = ()
    """The required libraries that this library opens by name."""

    @property
    def folder(self) -> str:
        """The folder of the library, relative to site-packages."""
        return posixpath.dirname(self.path)

    @property
    def cuda_majors(self) -> set[int]:
        """The CUDA majors of the libraries that this library needs."""
        return load_libraries().cuda_majors(self.elf.needs)


class LinkFault(Rejection[InstalledLibrary], Value):
    """Reason why a library cannot be loaded."""

    name: str
    """The missing or conflicting library or symbol."""
    provider: str | None = None
    """The package that provides the missing library, if known."""


class LinkEnvironment(Value):
    """Libraries that the loader finds in an environment and on the system."""

    libraries: Sequence[InstalledLibrary]
    system: Collection[str]

    @cached_property
    def places(self) -> set[str]:
        """The places to find a library: paths, and names if preloaded."""
        places = set[str]()
        for library in self.libraries:
            places.add(library.path)
            if _PRELOADED.fullmatch(library.folder):
                places.add(posixpath.basename(library.path))
                places.add(library.elf.soname or library.path)
        return places

    @cached_property
    def torch_cuda(self) -> int | None:
        """The CUDA major that torch's libraries are linked to, if any."""
        needs = set[str]()
        for library in self.libraries:
            if library.package == "torch":
                needs.update(library.elf.needs)
        majors = load_libraries().cuda_majors(needs)
        return majors.pop() if len(majors) == 1 else None

    @cached_property
    def requested_names(self) -> set[str]:
        """The names of the libraries that other libraries link to."""
        names = set[str]()
        for library in self.libraries:
            names.update(library.elf.needs, library.opened)
        return names

    @cached_property
    def torch_names(self) -> set[bytes]:
        """The symbols that torch's own libraries export."""
        names = set()
        for library in self.libraries:
            if library.path.startswith("torch/lib/"):
                names |= library.elf.defined_symbols()
        return names

    def provides(self, name: str, library: InstalledLibrary) -> bool:
        """Return whether the loader finds a library that ``library`` needs."""
        if name in self.places or name in self.system:
            return True
        for path in library.elf.paths:
            folder = _ORIGIN.sub(library.folder, path)
            if posixpath.normpath(f"{folder}/{name}") in self.places:
                return True
        return False


def find_link_faults(
    libraries: Sequence[InstalledLibrary],
    system: Collection[str],
) -> list[LinkFault]:
    """Return the reasons why libraries cannot be loaded, in library order.

    Args:
        libraries: The native libraries of the environment.
        system: The names of the libraries that the system has.
    """
    environment = LinkEnvironment(libraries, system)
    faults = []
    for library in libraries:
        for code, sentence, rule in _RULES:
            for name in rule(library, environment):
                said = sentence.format(name)
                reason = Reason(code, f"{library.path} of {library.package} {said}")
                provider = _find_provider(name, library, environment)
                faults.append(LinkFault(library, reason, name, provider))
    return faults


def _find_provider(
    name: str,
    library: InstalledLibrary,
    environment: LinkEnvironment,
) -> str | None:
    """Return the package that provides a missing library, if known."""
    shared = load_libraries()
    row = shared.row(name)
    likely = environment.torch_cuda or shared.cuda(name)
    cuda = next(iter(library.cuda_majors), likely)
    return row.package_for(cuda) if row else None


def _find_missing_libraries(
    library: InstalledLibrary,
    environment: LinkEnvironment,
) -> Iterator[str]:
    """Yield the libraries that the loader does not find."""
    shared = load_libraries()
    for name in _find_required_libraries(library, environment):
        if environment.provides(name, library):
            continue
        if not (_OF_PYTHON.fullmatch(name) or shared.of_the_driver.fullmatch(name)):
            yield name


def _find_required_libraries(
    library: InstalledLibrary,
    environment: LinkEnvironment,
) -> tuple[str, ...]:
    """Return the libraries without which a library cannot be loaded."""
    own = posixpath.basename(library.path)
    # Wheels contain unused libraries: torch 2.15.0 bundles libgfortran without its dependency libquadmath.
    if own not in environment.requested_names and _VERSIONED.search(own):
        return library.opened
    # A plugin is loaded on demand.
    if load_libraries().plugins.search(library.path):
        return library.opened
    return (*library.elf.needs, *library.opened)


def _find_other_cuda(
    library: InstalledLibrary,
    environment: LinkEnvironment,
) -> Iterator[str]:
    """Yield the CUDA majors of a library that conflict with torch's."""
    torch_cuda = environment.torch_cuda
    if torch_cuda is None:
        return
    for major in sorted(library.cuda_majors - {torch_cuda}):
        yield f"{major}, and torch with {torch_cuda}"


def _find_missing_symbols(
    library: InstalledLibrary,
    environment: LinkEnvironment,
) -> Iterator[str]:
    """Yield the first required symbol that torch does not export."""
    if library.package == "torch" or not is_linked_to_torch(library.elf):
        return
    missing = select_torch_names(library.elf.undefined_symbols())
    missing -= environment.torch_names
    for other in environment.libraries:
        if missing and other.package == library.package:
            missing -= other.elf.defined_symbols()
    if missing:
        yield min(missing).decode()


_RULES = (
    (
        "missing-library",
        "needs {}, which is neither in the environment nor on the system",
        _find_missing_libraries,
    ),
    ("other-cuda", "is built with CUDA {}", _find_other_cuda),
    (
        "missing-symbol",
        "uses {}, which this torch does not have",
        _find_missing_symbols,
    ),
)
"""The code, message, and function of each rule about linking."""


def read_libraries(site: Path) -> list[InstalledLibrary]:
    """Return the readable native libraries in site-packages."""
    libraries = []
    for path, package in sorted(_find_native_files(site)):
        with (
            suppress(OSError, ValueError),
            (site / path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            elf = read_elf(data, whole=True)
            if elf is None:
                continue
            opened = _find_opened_libraries(data, path, package)
            others = sorted(opened.difference(elf.needs))
            library = InstalledLibrary(path, package, elf, tuple(others))
            libraries.append(library)
    return libraries


def _find_native_files(site: Path) -> Iterator[tuple[str, str]]:
    """Yield the native files in RECORD with their package names."""
    for record in site.glob("*.dist-info/RECORD"):
        name = record.parent.name.partition("-")[0]
        package = name.replace("_", "-").lower()
        with suppress(OSError):
            for line in record.read_text("utf-8", "replace").splitlines():
                # This fast check is first, because torch's RECORD has 12,000 lines.
                if ".so" not in line:
                    continue
                path = line.partition(",")[0]
                if not leads_outside(path) and _NATIVE.fullmatch(path):
                    yield path, package


def _find_opened_libraries(
    data: mmap.mmap,
    path: str,
    package: str,
) -> set[str]:
    """Return the required libraries that a file opens by name.

    Args:
        data: The bytes of the file.
        path: Its path relative to site-packages.
        package: The package whose RECORD lists the file.
    """
    members = load_members()
    must_open = members.must_open.get(package)
    # A string does not prove that a library is opened. Only members.toml is certain.
    if must_open is None or not members.match_libraries(package, [path]):
        return set()
    opened = load_libraries().find_opened(data)
    return set(filter(must_open.fullmatch, opened))


def find_system_libraries() -> set[str]:
    """Return the libraries in ``ld.so.cache`` and in system folders."""
    names = set()
    with suppress(OSError):
        for name in _CACHED.findall(_CACHE.read_bytes()):
            names.add(name.decode())
    for folder in _FOLDERS:
        with suppress(OSError):
            names.update(file.name for file in Path(folder).iterdir())
    return names
