"""Find unknown hosts and unknown torch builds in lock files."""

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
    NAMED,
    Extension,
    ExtensionSource,
    TorchKey,
    list_files,
    load_extensions,
)
from gpuinstall.catalog.listing import (
    find_unknown_builds,
    platforms,
    read_family_wheels,
)
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.catalog.pages import PageFile, parse_files, wheels_from_files
from gpuinstall.lock.file.fit import try_read_lock
from gpuinstall.lock.file.target import Target, find_locks
from gpuinstall.sources.provenance import is_on_pytorch_host
from gpuinstall.sources.sources import format_export_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from gpuinstall.lock.file.lock import Lock, LockedFile
    from gpuinstall.sources.session import Session


MIRROR = "GPUINSTALL_EXTENSION_INDEX"
"""Environment variable with the URL of a mirror of Astral's index."""


def check_hosts(
    lock: Lock,
    files: Iterable[LockedFile],
    session: Session,
) -> None:
    """Raise LockError if locked files are from an unknown host.

    If a source does not respond, its hosts are unknown, and each host is reported.

    Args:
        lock: The lock, for messages and its indexes.
        files: The files to check, cached or not.
        session: The configured sources and their clients.
    """
    strange = find_unknown_hosts_in_lock(lock, files, session)
    unreachable = session.client.unreachable
    for host, packages in strange.items():
        refused = packages
        if session.sources.policy.trusts_folder:
            # An unreachable source may link to the host.
            if unreachable(session.sources.torch_index):
                family = load_catalog().family
                refused = [package for package in packages if package not in family]
            if unreachable(session.default_index or ""):
                refused = []
        if refused:
            hosts = "GPUINSTALL_TORCH_INDEX, UV_DEFAULT_INDEX, or UV_INDEX"
            hint = (
                f"gpuinstall lock   # recreates it; or configure the index with {hosts}"
            )
            locked = [lock.indexes[name] for name in refused if name in lock.indexes]
            if locked:
                exports = format_export_commands(dict.fromkeys(locked))
                hint = f"{exports}   # if you trust this index, which the lock was created from"
            raise LockError(
                "lock-source",
                f"{lock.name} installs {', '.join(refused)} from {host}, which is not a configured source",
                hint=hint,
            )
        role = ": the source of torch" if "torch" in packages else ""
        session.reporter.notice("Index", f"{host} (from {lock.name}){role}")


def add_locked_builds(
    catalog: Catalog,
    folder: Path,
    opened: Callable[[], Session],
) -> Catalog:
    """Add readable builds of the locks in a folder that the catalog lacks.

    Args:
        catalog: The catalog.
        folder: The folder of the lock files.
        opened: Returns the session; called only if needed.
    """
    # The command that needs an unreadable lock reports it.
    locks = filter(None, map(try_read_lock, find_locks(folder)))
    unknown = []
    for file in chain.from_iterable(lock.files for lock in locks):
        if file.package != "torch":
            continue
        for build in _find_unknown_builds(file, catalog):
            catalog = catalog.with_kind(build.backend.kind)
            # Send requests only to the configured sources.
            if not find_unknown_hosts([file], build.backend.tag, opened()):
                unknown.append(build)
    if not unknown:
        return catalog
    from gpuinstall.wheels.learned.reader import make_reader  # slow to load

    reader = make_reader(opened())
    new = []
    for build in unknown:
        with suppress(InstallationError):
            new.append(reader.read_torch_row(build).build())
    return replace(catalog, builds=(*catalog.builds, *new))


def _find_unknown_builds(file: LockedFile, catalog: Catalog) -> Iterator[Build]:
    """Yield the unknown builds of a torch wheel, one for each platform."""
    link = PageFile(file.url, file.name, file.sha256)
    for listed in wheels_from_files([link], None, DEFAULT_INDEX):
        wheel = listed
        backend = known_backend(wheel.backend)
        if backend:
            wheel = replace(wheel, source=f"{catalog.torch_index}/{backend}")
            catalog = catalog.with_kind(backend.kind)
        for platform in platforms(wheel.tags):
            known = catalog.builds_for(*platform.split("_", 1))
            yield from find_unknown_builds([wheel], known, platform)


def find_unknown_hosts_in_lock(
    lock: Lock, files: Iterable[LockedFile], session: Session
) -> dict[str, list[str]]:
    """Return the packages of a lock from unknown hosts, by host."""
    torch = lock.versions.get("torch", "")
    label = torch.partition("+")[2]
    if not label and lock.is_from_gpuinstall:
        # The builds for macOS have no label.
        label = Target.parse(lock.target).backend
    backend = known_backend(label)
    return find_unknown_hosts(files, backend.tag if backend else label, session, torch)


def find_unknown_hosts(
    files: Iterable[LockedFile],
    backend: str,
    session: Session,
    torch: str = "",
) -> dict[str, list[str]]:
    """Return packages from hosts that no source or page links to, by host.

    Args:
        files: The files.
        backend: The tag of torch's backend.
        session: The configured sources and their clients.
        torch: The version of torch, which selects pages of extensions.
    """
    policy = session.sources.policy
    known = _find_servers((*session.sources.places, session.default_index))
    strange: dict[str, list[str]] = {}
    for file in files:
        location = Location.parse(file.url)
        server = location.server
        # The gate checks local files.
        if server == "file://" or policy.trusts(location):
            continue
        is_https = server.startswith("https://") and server.endswith(":443")
        # PyTorch's index links to files on other hosts of PyTorch.
        if server in known or (is_https and is_on_pytorch_host(server)):
            continue
        os = "windows" if "-win" in file.name else "linux"
        minor = ".".join(torch.split(".")[:2])
        key = TorchKey(minor, backend, os)
        # Read pages until one links to the host.
        for address in _read_listed_urls(file.package, key, session):
            known |= _find_servers([address])
            if server in known:
                break
        else:
            strange.setdefault(server, []).append(file.package)
    return strange


def _read_listed_urls(
    package: str,
    torch: TorchKey,
    session: Session,
) -> Iterator[str | None]:
    """Yield the URLs on the pages of a package.

    An unreachable source yields no URLs.

    Args:
        package: The package.
        torch: The torch of the lock, which selects pages.
        session: The sources and their clients.
    """
    sources = session.sources
    client = session.client
    wheels: Iterable[Wheel] = ()
    with suppress(InstallationError):
        wheels = read_family_wheels(sources, client, torch.backend, package)
    for wheel in wheels:
        yield wheel.url
    # Read this last, so that other indexes receive no names from torch's index.
    page = session.find_page_if_reachable(package)
    for file in parse_files(page) if page else ():
        yield file.url
    if package in load_extensions().rows:
        extension = find_extension(package, session)
        yield from (source.url for source in extension.sources)
        with suppress(InstallationError):
            listing = list_files(extension, [torch], sources, client)
            yield from (file.wheel.url for file in listing.files)


def _find_servers(addresses: Iterable[str | None]) -> set[str]:
    return {Location.parse(address).server for address in addresses if address}


def find_extension(name: str, session: Session) -> Extension:
    """Return an extension with the user's sources added."""
    row = load_extensions().rows[name]
    mirror = session.environment.get(MIRROR)
    sources = []
    for source in row.sources:
        address = source.url
        if mirror and source.id == "astral":
            address = f"{mirror.rstrip('/')}/{{backend}}/{{name}}/"
        sources.append(source._replace(url=address))
    sources += [
        ExtensionSource(NAMED, rank=4, url=address)
        for address in session.sources.extension_sources
    ]
    return row._replace(sources=tuple(sources))
