"""Find unknown hosts and unknown torch builds in lock files."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from gpuinstall.base.advice import Hint, make_command
from gpuinstall.base.cache import JsonCache
from gpuinstall.base.errors import InstallationError, LockError
from gpuinstall.base.location import Location
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import find_labeled_backend, known_backend
from gpuinstall.catalog import DEFAULT_INDEX, Build, Catalog
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
    group_by_build,
    platforms,
    read_listing,
)
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.catalog.pages import PageFile, parse_files, wheels_from_files
from gpuinstall.lock.file.target import Target
from gpuinstall.sources.addresses import make_export_commands
from gpuinstall.sources.gate import LIST
from gpuinstall.sources.provenance import Effect, is_on_pytorch_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.lock.file.lock import Lock, LockedFile
    from gpuinstall.sources import Sources
    from gpuinstall.sources.addresses import Addresses
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Client


class LinkedHosts(Value):
    """Hosts to which the user's sources have linked, in previous runs too."""

    servers: frozenset[str] = frozenset()


def check_hosts(
    lock: Lock,
    files: Iterable[LockedFile],
    sources: Sources,
    client: Client,
    reporter: Reporter,
) -> None:
    """Raise LockError if locked files are from a host that is not accepted.

    An unknown host in a trusted folder is reported instead. PyTorch's packages may only
    have one if an index does not respond, because it may link to the host.

    Args:
        lock: The lock, for messages and its indexes.
        files: The files to check, cached or not.
        sources: The sources, with the default index.
        client: The HTTP client.
        reporter: Reports unknown hosts in a trusted folder.
    """
    torch = lock.versions.get("torch", "")
    backend = find_labeled_backend(torch)
    tag = backend.tag if backend else ""
    if not backend and lock.is_from_gpuinstall:
        # The builds for macOS have no label.
        tag = Target.parse(lock.target).backend
    indexes = sources.addresses.torch_index, sources.addresses.default_index or ""
    trusts_folder = sources.policy.trusts_folder
    unknown = find_unknown_hosts(files, tag, sources, client, torch)
    for host, packages in unknown.items():
        refused = packages
        if trusts_folder:
            is_known = not any(map(client.unreachable, indexes))
            family = load_catalog().family if is_known else ()
            refused = [name for name in packages if name in family]
        if refused:
            raise _create_host_error(lock, host, refused, trusts_folder=trusts_folder)
        role = ": the source of torch" if "torch" in packages else ""
        reporter.notice("Index", f"{host} (from {lock.name}){role}")


def _create_host_error(
    lock: Lock, host: str, packages: Iterable[str], *, trusts_folder: bool
) -> LockError:
    """Return the error of packages from a host that is not accepted."""
    hosts = "GPUINSTALL_TORCH_INDEX, UV_DEFAULT_INDEX, or UV_INDEX"
    note = f"recreates it; or configure the index with {hosts}"
    fixes: tuple[Hint, ...] = (make_command("lock", note=note),)
    if not trusts_folder:
        fixes += (LIST,)
    locked = [lock.indexes[name] for name in packages if name in lock.indexes]
    if locked:
        note = "if you trust this index, which the lock was created from"
        fixes = make_export_commands(dict.fromkeys(locked), note)
    return LockError(
        "lock-source",
        f"{lock.name} installs {', '.join(packages)} from {host}, which is not a configured source",
        hint=fixes,
    )


def add_locked_builds(
    catalog: Catalog,
    locks: Iterable[Lock],
    open_session: Callable[[], Session],
) -> Catalog:
    """Add readable builds of locks that the catalog lacks.

    Args:
        catalog: The catalog.
        locks: The locks.
        open_session: Opens the session; called only if needed.
    """
    unknown = []
    for file in chain.from_iterable(lock.files for lock in locks):
        if file.package != "torch":
            continue
        for build in _find_unknown_builds(file, catalog):
            catalog = catalog.with_kind(build.backend.kind)
            # Send requests only to the configured sources.
            session = open_session()
            sources = session.find_listed_sources()
            if not find_unknown_hosts(
                [file], build.backend.tag, sources, session.client
            ):
                unknown.append(build)
    if not unknown:
        return catalog
    from gpuinstall.wheels.learned.reader import make_reader  # slow to load

    reader = make_reader(open_session())
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
            builds = group_by_build([wheel], known, platform)
            yield from find_unknown_builds(builds, known, platform)


def find_unknown_hosts(
    files: Iterable[LockedFile],
    backend: str,
    sources: Sources,
    client: Client,
    torch: str = "",
) -> dict[str, list[str]]:
    """Return packages from hosts that no source or page links to, by host.

    The pages of one package are read for each host, until one links to the host. The
    cache records the hosts found.

    Args:
        files: The files.
        backend: The tag of torch's backend.
        sources: The sources, with the default index.
        client: The HTTP client.
        torch: The version of torch, which selects pages of extensions.
    """
    addresses = sources.addresses
    cache = JsonCache(client.hashes.folder.with_name("hosts"), LinkedHosts)
    extensions = *addresses.list_addresses(Effect.EXTENSIONS), addresses.mirror
    configured = "\n".join((*sorted(addresses.places), *extensions))
    recorded = cache.get(configured) or LinkedHosts()
    known = recorded.servers | {one.server for one in addresses.index_locations}
    unknown = defaultdict[str, dict[str, str]](dict)
    for file in files:
        location = file.location
        server = location.server
        is_https = server.startswith("https://") and server.endswith(":443")
        # PyTorch's index links to files on other hosts of PyTorch.
        is_known = server in known or (is_https and is_on_pytorch_host(location))
        # The gate checks local files.
        if not (location.is_local or sources.policy.trusts(location) or is_known):
            unknown[server][file.package] = file.name
    linked = set[str]()
    minor = ".".join(torch.split(".")[:2])
    rows = load_extensions().rows
    is_tied = load_catalog().is_tied
    for server, packages in unknown.items():
        package = min(packages, key=lambda one: (one in rows, not is_tied(one)))
        os = "windows" if "-win" in packages[package] else "linux"
        key = TorchKey(minor, backend, os)
        for address in _read_listed_urls(package, key, sources, client):
            linked.add(Location.parse(address or "").server)
            if server in linked:
                break
    if linked.intersection(unknown):
        cache.put(configured, LinkedHosts(recorded.servers | linked))
    return {host: [*names] for host, names in unknown.items() if host not in linked}


def report_linked_hosts(
    files: Iterable[LockedFile],
    addresses: Addresses,
    client: Client,
    reporter: Reporter,
) -> None:
    """Report hosts to which only the pages of a folder's index link."""
    from gpuinstall.sources.web import find_index  # slow to import

    chosen = {one.value: one for one in addresses.folder_sources}
    known = {one.server for one in addresses.index_locations}
    hosts = {file.location.server: file.package for file in files}
    for host, package in hosts.items():
        indexes = addresses.find_indexes(package)
        if host in known or chosen.keys().isdisjoint(indexes):
            continue
        index = find_index(client, package, indexes)
        if index in chosen:
            reporter.notice(
                "Index", f"{host} (linked by {index} from {chosen[index].file})"
            )


def _read_listed_urls(
    package: str,
    torch: TorchKey,
    sources: Sources,
    client: Client,
) -> Iterator[str | None]:
    """Yield the URLs on the pages of a package.

    An unreachable source yields no URLs.

    Args:
        package: The package.
        torch: The torch of the lock, which selects pages.
        sources: The sources, with the default index.
        client: The HTTP client.
    """
    from gpuinstall.sources.web import find_page  # slow to import

    own = sources.with_default_index(None)
    # Other indexes receive no names from torch's index, and torch's index no others.
    tags = [torch.backend] if load_catalog().is_tied(package) else []
    with suppress(InstallationError):
        for wheel in read_listing(own, client, tags, [package]).wheels:
            yield wheel.url
    if package in load_extensions().rows:
        extension = find_extension(package, sources.addresses)
        yield from (source.url for source in extension.sources)
        with suppress(InstallationError):
            listing = list_files(extension, [torch], own, client)
            yield from (file.wheel.url for file in listing.files)
        return
    with suppress(InstallationError):
        page = find_page(client, package, sources.addresses.find_indexes(package))
        yield from (file.url for file in (parse_files(page) if page else ()))


def find_extension(name: str, addresses: Addresses) -> Extension:
    """Return an extension with the user's sources added."""
    row = load_extensions().rows[name]
    sources = list(row.sources)
    if addresses.mirror:
        url = f"{addresses.mirror.rstrip('/')}/{{backend}}/{{name}}/"
        sources = [
            replace(one, url=url) if one.id == "astral" else one for one in sources
        ]
    sources += [
        ExtensionSource(NAMED, rank=4, url=address)
        for address in addresses.list_addresses(Effect.EXTENSIONS)
    ]
    return replace(row, sources=tuple(sources))
