"""What a lock has that is not known here: hosts that are none of the sources, builds that the catalogue lacks."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError, LockError
from gpuinstall.base.location import Location
from gpuinstall.base.values import replace
from gpuinstall.base.versions import known_backend
from gpuinstall.catalog import DEFAULT_INDEX, Build, Catalog, Wheel
from gpuinstall.catalog.extensions import (
    Beside,
    list_files,
    load_extensions,
)
from gpuinstall.catalog.listing import family_wheels, platforms, unknown_builds
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.catalog.pages import PageFile, parse_files, wheels_of
from gpuinstall.lock.file.fit import readable_lock
from gpuinstall.lock.request.declaration import locks_in
from gpuinstall.sources.provenance import is_of_pytorch
from gpuinstall.sources.sources import export_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from gpuinstall.lock.file.lock import Lock, LockedFile
    from gpuinstall.sources.session import Session


def check_hosts(
    lock: Lock,
    files: Iterable[LockedFile],
    session: Session,
) -> None:
    """Raise LockError if files of a lock come from a host that is none of the sources here, cached or not.

    If a source does not answer, its hosts are not known; then each host is named.

    Args:
        lock: The lock, for messages, and the indexes that it names.
        files: Those of it that are judged.
        session: The sources here, and what asks them.
    """
    strange = locked_strange_hosts(lock, files, session)
    unreachable = session.client.unreachable
    for host, packages in strange.items():
        refused = packages
        if session.sources.policy.trusts_folder:
            # A source that does not answer may lead there.
            if unreachable(session.sources.torch_index):
                family = load_catalog().family
                refused = [package for package in packages if package not in family]
            if unreachable(session.default_index or ""):
                refused = []
        if refused:
            hosts = "GPUINSTALL_TORCH_INDEX, UV_DEFAULT_INDEX, UV_INDEX"
            hint = f"gpuinstall lock   # makes it again; or set the host: {hosts}"
            locked = [lock.indexes[name] for name in refused if name in lock.indexes]
            if locked:
                hint = f"{export_commands(dict.fromkeys(locked))}   # if you trust this index: it was locked from there"
            raise LockError(
                "lock-source",
                f"{lock.name} takes {', '.join(refused)} from {host}, which is not one of the configured sources",
                hint=hint,
            )
        role = ": the source of torch" if "torch" in packages else ""
        session.reporter.notice("Index", f"{host}, as {lock.name} says{role}")


def with_locked_builds(
    catalog: Catalog,
    folder: Path,
    opened: Callable[[], Session],
) -> Catalog:
    """Add the builds that the locks in a folder hold and the catalogue does not know, as far as they can be read.

    Args:
        catalog: What is known.
        folder: Where the locks are.
        opened: Returns the session, which few locks need.
    """
    # One that cannot be read is reported when it is needed.
    locks = filter(None, map(readable_lock, locks_in(folder)))
    unknown = []
    for file in chain.from_iterable(lock.files for lock in locks):
        if file.package != "torch":
            continue
        for build in _builds_of(file, catalog):
            catalog = catalog.serving(build.backend.kind)
            # Only the sources are asked.
            if not strange_hosts([file], build.backend.tag, opened()):
                unknown.append(build)
    if not unknown:
        return catalog
    from gpuinstall.wheels.learned.reader import reader_for  # which takes long to load

    reader = reader_for(opened())
    new = []
    for build in unknown:
        with suppress(InstallationError):
            new.append(reader.torch(build).build())
    return replace(catalog, builds=(*catalog.builds, *new))


def _builds_of(file: LockedFile, catalog: Catalog) -> Iterator[Build]:
    """Yield the builds that the catalogue does not know, for each platform that a wheel of torch serves."""
    link = PageFile(file.url, file.name, file.sha256)
    for listed in wheels_of([link], None, DEFAULT_INDEX):
        wheel = listed
        backend = known_backend(wheel.backend)
        if backend:
            wheel = replace(wheel, source=f"{catalog.torch_index}/{backend}")
            catalog = catalog.serving(backend.kind)
        for platform in platforms(wheel.tags):
            known = catalog.builds_for(*platform.split("_", 1))
            yield from unknown_builds([wheel], known, platform)


def locked_strange_hosts(
    lock: Lock, files: Iterable[LockedFile], session: Session
) -> dict[str, list[str]]:
    """Return the packages of a lock by host, for hosts without a source."""
    torch = lock.versions.get("torch", "")
    label = torch.partition("+")[2]
    backend = known_backend(label)
    return strange_hosts(files, backend.tag if backend else label, session, torch)


def strange_hosts(
    files: Iterable[LockedFile],
    backend: str,
    session: Session,
    torch: str = "",
) -> dict[str, list[str]]:
    """Return the packages by host, with its scheme, if no source names it and no page of theirs leads to it.

    Args:
        files: The files.
        backend: The tag of torch's backend.
        session: The sources here, and what asks them.
        torch: The version of torch, by which pages of extensions are called.
    """
    policy = session.sources.policy
    known = _servers((*session.sources.places, session.default_index))
    strange: dict[str, list[str]] = {}
    for file in files:
        location = Location.parse(file.url)
        server = location.server
        # The gate judges files of this machine.
        if server == "file://" or policy.trusts(location):
            continue
        is_https = server.startswith("https://") and server.endswith(":443")
        # PyTorch's index keeps its files on further hosts of its own.
        if server in known or (is_https and is_of_pytorch(server)):
            continue
        os = "windows" if "-win" in file.name else "linux"
        minor = ".".join(torch.split(".")[:2])
        beside = Beside(minor, backend, os)
        # One page after the other, until one leads there.
        for address in _listed_addresses(file.package, beside, session):
            known |= _servers([address])
            if server in known:
                break
        else:
            strange.setdefault(server, []).append(file.package)
    return strange


def _listed_addresses(
    package: str,
    beside: Beside,
    session: Session,
) -> Iterator[str | None]:
    """Yield the addresses to which the pages of a package lead; a source that does not answer has none.

    Args:
        package: The package.
        beside: The torch by which pages of extensions are called.
        session: The sources, and what asks them.
    """
    # It takes long to load.
    from gpuinstall.lock.solve.extensions import extension_row

    sources = session.sources
    client = session.client
    wheels: Iterable[Wheel] = ()
    with suppress(InstallationError):
        wheels = family_wheels(sources, client, beside.backend, package)
    for wheel in wheels:
        yield wheel.url
    # Only now: what the torch index has is nobody else's to know.
    page = session.known_page(package)
    for file in parse_files(page) if page else ():
        yield file.url
    if package in load_extensions().rows:
        extension = extension_row(package, session)
        yield from (source.url for source in extension.sources)
        with suppress(InstallationError):
            listing = list_files(extension, [beside], sources, client)
            yield from (file.wheel.url for file in listing.files)


def _servers(addresses: Iterable[str | None]) -> set[str]:
    return {Location.parse(address).server for address in addresses if address}
