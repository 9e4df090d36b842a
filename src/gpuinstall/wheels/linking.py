"""Whether the libraries of an environment can be loaded, as the loader would find out, without loading any.

A library is looked for where its own paths say, then among those that torch has loaded before (``torch/lib`` and
``nvidia/*/lib``), then where the system looks. Symbols are compared if a library is linked to torch's.
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

from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.values import Value
from gpuinstall.wheels.elf import Elf, read_elf
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import is_linked_to_torch, load_libraries
from gpuinstall.wheels.torch_abi import torch_names

_NATIVE = re.compile(r".+\.so(\.[\w.]+)?")
_VERSIONED = re.compile(r"\.so\.\d")
_PRELOADED = re.compile(r"torch/lib|nvidia/[\w/]+/lib")
_ORIGIN = re.compile(r"\$ORIGIN|\$\{ORIGIN\}")
_OF_PYTHON = re.compile(r"libpython3[\w.]*\.so[\w.]*")
_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_CACHE = Path("/etc/ld.so.cache")
# The last parts of the cache's paths; the table before them is binary.
_CACHED = re.compile(rb"/([!-.0-~]+)\0")


class InstalledLibrary(NamedTuple):
    """A library of an environment."""

    path: str
    """Its path from the folder of packages."""
    package: str
    elf: Elf
    opened: tuple[str, ...] = ()
    """The libraries that it opens by name alone, and does nothing without."""

    @property
    def folder(self) -> str:
        """The folder that it lies in."""
        return posixpath.dirname(self.path)

    @property
    def cuda_majors(self) -> set[int]:
        """The CUDA majors of the libraries that it needs."""
        return load_libraries().cuda_majors(self.elf.needs)


class LinkFault(Rejection[InstalledLibrary], Value):
    """A library that cannot be loaded as it is."""

    name: str
    """What it lacks or conflicts with."""
    provider: str | None = None
    """The package that has what it lacks, as far as that is known."""


class LinkEnvironment(Value):
    """What the loader finds in an environment and on its system."""

    libraries: Sequence[InstalledLibrary]
    system: Collection[str]

    @cached_property
    def places(self) -> set[str]:
        """The paths of the libraries, and the names of those that torch has loaded before anything is looked for."""
        places = set[str]()
        for library in self.libraries:
            places.add(library.path)
            if _PRELOADED.fullmatch(library.folder):
                places.add(posixpath.basename(library.path))
                places.add(library.elf.soname or library.path)
        return places

    @cached_property
    def torch_cuda(self) -> int | None:
        """The CUDA major of torch; None if its libraries name none, or several."""
        needs = set[str]()
        for library in self.libraries:
            if library.package == "torch":
                needs.update(library.elf.needs)
        majors = load_libraries().cuda_majors(needs)
        if len(majors) == 1:
            return majors.pop()
        return None

    @cached_property
    def requested_names(self) -> set[str]:
        """The names by which the libraries ask for others."""
        names = set[str]()
        for library in self.libraries:
            names.update(library.elf.needs, library.opened)
        return names

    @cached_property
    def torch_names(self) -> set[bytes]:
        """The symbols that torch's own libraries have for others."""
        names = set()
        for library in self.libraries:
            if library.path.startswith("torch/lib/"):
                names |= library.elf.defined()
        return names

    def provides(self, name: str, library: InstalledLibrary) -> bool:
        """Whether the loader finds a library by its name if ``library`` requests it."""
        if name in self.places or name in self.system:
            return True
        for path in library.elf.paths:
            folder = _ORIGIN.sub(library.folder, path)
            if posixpath.normpath(f"{folder}/{name}") in self.places:
                return True
        return False


def link_faults(
    libraries: Sequence[InstalledLibrary],
    system: Collection[str],
) -> list[LinkFault]:
    """Return what keeps the libraries of an environment from loading, in the order of the libraries.

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
                provider = _provider(name, library, environment)
                faults.append(LinkFault(library, reason, name, provider))
    return faults


def _provider(
    name: str,
    library: InstalledLibrary,
    environment: LinkEnvironment,
) -> str | None:
    """Return the package that has what a library lacks, as far as that is known."""
    shared = load_libraries()
    row = shared.row(name)
    likely = environment.torch_cuda or shared.cuda(name)
    cuda = next(iter(library.cuda_majors), likely)
    return row.package_for(cuda) if row else None


def _missing_libraries(
    library: InstalledLibrary,
    environment: LinkEnvironment,
) -> Iterator[str]:
    """Yield the libraries that the loader would look for and not find."""
    shared = load_libraries()
    for name in _required_names(library, environment):
        if environment.provides(name, library):
            continue
        if _OF_PYTHON.fullmatch(name):
            continue
        if shared.of_the_driver.fullmatch(name):
            continue
        yield name


def _required_names(
    library: InstalledLibrary,
    environment: LinkEnvironment,
) -> tuple[str, ...]:
    """Return the libraries without which something does not work."""
    own = posixpath.basename(library.path)
    # Wheels carry libraries that nothing asks for: torch 2.15.0's a libgfortran, without its libquadmath.
    if own not in environment.requested_names and _VERSIONED.search(own):
        return library.opened
    # A plugin is loaded on demand.
    if load_libraries().plugins.search(library.path):
        return library.opened
    return (*library.elf.needs, *library.opened)


def _other_cuda(
    library: InstalledLibrary,
    environment: LinkEnvironment,
) -> Iterator[str]:
    """Yield a CUDA major that a library is built with and torch is not: one process can have only one."""
    torch_cuda = environment.torch_cuda
    if torch_cuda is None:
        return
    for major in sorted(library.cuda_majors - {torch_cuda}):
        yield f"{major}, and torch with {torch_cuda}"


def _missing_symbols(
    library: InstalledLibrary,
    environment: LinkEnvironment,
) -> Iterator[str]:
    """Yield the first symbol that a library uses of torch, and neither torch nor its own package has."""
    if library.package == "torch" or not is_linked_to_torch(library.elf):
        return
    missing = torch_names(library.elf.undefined())
    missing -= environment.torch_names
    for other in environment.libraries:
        if missing and other.package == library.package:
            missing -= other.elf.defined()
    if missing:
        yield min(missing).decode()


_RULES = (
    (
        "missing-library",
        "needs {}, which is neither in the environment nor on the system",
        _missing_libraries,
    ),
    ("other-cuda", "is built with CUDA {}", _other_cuda),
    ("missing-symbol", "uses {}, which this torch does not have", _missing_symbols),
)
"""The rules, each with its code and what it says of what it yields."""


def read_libraries(site: Path) -> list[InstalledLibrary]:
    """Return every native library in a folder of packages; one that cannot be read is left out."""
    libraries = []
    for path, package in sorted(_native_files(site)):
        with (
            suppress(OSError, ValueError),
            (site / path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            elf = read_elf(data, whole=True)
            if elf is None:
                continue
            opened = _opened_by_name(data, path, package)
            others = sorted(opened.difference(elf.needs))
            library = InstalledLibrary(path, package, elf, tuple(others))
            libraries.append(library)
    return libraries


def _native_files(site: Path) -> Iterator[tuple[str, str]]:
    """Yield each native file that a package's record names, with the package."""
    for record in site.glob("*.dist-info/RECORD"):
        name = record.parent.name.partition("-")[0]
        package = name.replace("_", "-").lower()
        with suppress(OSError):
            for line in record.read_text("utf-8", "replace").splitlines():
                # Few of torch's 12,000 lines are looked at closely.
                if ".so" not in line:
                    continue
                path = line.partition(",")[0]
                is_inside = not path.startswith(("/", ".."))
                if is_inside and _NATIVE.fullmatch(path):
                    yield path, package


def _opened_by_name(
    data: mmap.mmap,
    path: str,
    package: str,
) -> set[str]:
    """Return the libraries that a file opens, of those that its package is known to need.

    Args:
        data: The bytes of the file.
        path: Its path from the folder of packages.
        package: The package that recorded it.
    """
    members = load_members()
    must_open = members.must_open.get(package)
    # A name that occurs as a string alone may never be opened, unless it is known that it is.
    if must_open is None or not members.answering(package, [path]):
        return set()
    opened = load_libraries().opened_by(data)
    return set(filter(must_open.fullmatch, opened))


def system_libraries() -> set[str]:
    """Return the names of the libraries that the loader finds by itself: those of its cache and its folders."""
    names = set()
    with suppress(OSError):
        for name in _CACHED.findall(_CACHE.read_bytes()):
            names.add(name.decode())
    for folder in _FOLDERS:
        with suppress(OSError):
            names.update(file.name for file in Path(folder).iterdir())
    return names
