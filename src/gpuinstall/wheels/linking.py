"""Whether the libraries of an environment can be loaded, as the loader would find out, without loading any.

A library is looked for where its own paths say, then among those that torch has loaded before (``torch/lib`` and
``nvidia/*/lib``), then where the system looks. Symbols are looked at where a library is linked to torch's.
"""

from __future__ import annotations

import mmap
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.elf import Elf, read_elf
from gpuinstall.wheels.needs import OF_TORCH, load_libraries
from gpuinstall.wheels.torch_abi import ordinary_names, stable_names

_NATIVE = re.compile(r".+\.so(\.[\w.]+)?")
_PRELOADED = re.compile(r"torch/lib|nvidia/[\w/]+/lib")
_OF_PYTHON = re.compile(r"libpython3[\w.]*\.so[\w.]*")
_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_CACHE = Path("/etc/ld.so.cache")
_CACHED = re.compile(rb"/([!-.0-~]+)\0")  # the last parts of its paths; the table before them is binary


class InstalledLibrary(NamedTuple):
    """A library by its path from the folder of packages; ``opened`` are those that its strings name."""

    path: str
    package: str
    elf: Elf
    opened: tuple[str, ...] = ()


class LinkFault(NamedTuple):
    """What a library lacks: ``code`` is missing-library, missing-symbol, other-cuda, twice-there or glibc-too-old.

    ``provider`` is the package that has it, as far as that is known. It is not ``certain`` to matter where a string
    alone names the library, or where the part that needs it is one that the package does without.
    """

    library: InstalledLibrary
    code: str
    what: str
    provider: str | None = None
    certain: bool = True

    def __str__(self) -> str:
        said = {
            "missing-library": f"needs {self.what}, which is neither in the environment nor on the system",
            "missing-symbol": f"uses {self.what}, which this torch does not have",
            "other-cuda": f"is built with CUDA {self.what}",
            "twice-there": f"is in {self.what} too, and only one of them is used",
            "glibc-too-old": f"requires glibc {self.what}, which is newer than this system's",
        }
        return f"{self.library.path} of {self.library.package} {said[self.code]}"


def link_faults(
    libraries: Sequence[InstalledLibrary], system: Collection[str], glibc: tuple[int, ...] | None = None
) -> list[LinkFault]:
    """Say what the libraries of an environment lack; ``system`` are the names that the system has."""
    shared, paths = load_libraries(), {library.path for library in libraries}
    owners: dict[str, dict[str, None]] = {}  # of paths, and of the names that torch has loaded before
    for library in libraries:
        names = {library.path}
        if _PRELOADED.fullmatch(posixpath.dirname(library.path)):
            names |= {posixpath.basename(library.path), library.elf.soname or library.path}
        for name in names:
            owners.setdefault(name, {})[library.package] = None
    needs = {need for library in libraries if library.package == "torch" for need in library.elf.needs}
    majors = {major for need in needs if (major := shared.cuda(need))}
    faults = []
    for library in libraries:
        origin = posixpath.dirname(library.path)
        own_paths = (path.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for path in library.elf.paths)
        folders = list(map(posixpath.normpath, own_paths))
        cuda = {major for need in library.elf.needs if (major := shared.cuda(need))}
        for name in (*library.elf.needs, *library.opened):
            known = name in owners or name in system or any(f"{folder}/{name}" in paths for folder in folders)
            if not (known or _OF_PYTHON.fullmatch(name) or shared.of_the_driver.fullmatch(name)):
                row, major = shared.row(name), next(iter(cuda or majors), shared.cuda(name))
                must = load_members().must_open.get(library.package)
                certain = name not in library.opened or bool(must and must.fullmatch(name))
                certain = certain and not shared.plugins.search(library.path)
                faults.append(LinkFault(library, "missing-library", name, row and row.package_for(major), certain))
        if len(majors) == 1 and cuda - majors:
            faults.append(LinkFault(library, "other-cuda", f"{max(cuda)}, and torch with {max(majors)}"))
        shared_name = library.elf.soname if _PRELOADED.fullmatch(origin) else None
        others = {**owners[library.path], **owners.get(shared_name or "", {})}.keys() - {library.package}
        if others:
            faults.append(LinkFault(library, "twice-there", min(others)))
        if glibc and (newest := library.elf.newest("GLIBC")) and newest > glibc:
            faults.append(LinkFault(library, "glibc-too-old", ".".join(map(str, newest))))
    return faults + list(_missing_symbols(libraries))


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
                answers = not members.with_torch.fullmatch(package) and members.answering(package, [path])
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
            files = (line.partition(",")[0] for line in record.read_text("utf-8", "replace").splitlines())
            inside = (file for file in files if not file.startswith(("/", "..")))
            yield from ((file, package) for file in inside if _NATIVE.fullmatch(file))


def _missing_symbols(libraries: Iterable[InstalledLibrary]) -> Iterator[LinkFault]:
    """Yield one fault for each library linked to torch that uses a name which torch here does not export."""
    wanted = {}
    for library in libraries:
        if library.package != "torch" and any(OF_TORCH.match(need) for need in library.elf.needs):
            undefined = library.elf.undefined()
            wanted[library] = ordinary_names(undefined) | stable_names(undefined)
    every = set().union(*wanted.values())
    has = {"": set[bytes]()}
    for library in libraries if every else ():
        key = "" if library.path.startswith("torch/lib/") else library.package
        has[key] = has.get(key, set()) | (library.elf.defined() & every)
    for library, names in wanted.items():
        if missing := names - has[""] - has.get(library.package, set()):
            yield LinkFault(library, "missing-symbol", min(missing).decode())
