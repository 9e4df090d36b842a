"""Sources of prebuilt extensions, and the files that they list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from gpuinstall.base.codec import WordSet, read_object
from gpuinstall.base.errors import InstallationError, UnreachableError
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import Value
from gpuinstall.catalog import Wheel, data_files
from gpuinstall.catalog.listing import read_default_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.sources import Sources

if TYPE_CHECKING:
    from gpuinstall.sources.web import Client

PAGES_AT_ONCE = 8
NAMED = "named"
"""The ID of an extension source that the user requested."""


class TorchKey(Value):
    """The parts of a torch build that occur in the URLs of sources."""

    minor: str
    """The minor release of torch, such as ``2.11``."""

    backend: str
    os: str


class ExtensionSource(Value):
    """A source of prebuilt wheels of an extension."""

    id: str
    rank: int
    url: str | None = None
    """The URL template of the source's pages; None: the default index."""

    os: str | None = None
    """The operating system of the wheels, if there is only one."""

    tags: tuple[str, ...] = ("",)
    """The releases of a GitHub repository, each with its own page."""

    hosts: WordSet = frozenset()
    """The other file hosts, which may redirect to each other."""


class Extension(Value):
    """An extension package and its sources, from ``extensions.toml``."""

    name: str
    sources: tuple[ExtensionSource, ...]
    lowest: str | None = None
    optional_for: WordSet = frozenset()
    unclaimed: bool = False


class ExtensionFile(Value):
    """A wheel of an extension, with the CUDA and torch in its name."""

    wheel: Wheel
    source: ExtensionSource
    cuda: str | None = None
    """The CUDA version in the file name, such as ``12`` or ``12.8``."""
    torch: str | None = None
    """The minor release of torch, such as ``2.11``."""
    cpu: bool = False
    and_newer: bool = False
    """Whether the wheel also supports newer releases of torch."""


class Extensions(Value):
    """The contents of ``extensions.toml``."""

    rows: Mapping[str, Extension]
    """The extensions by package name."""
    sources: Mapping[str, ExtensionSource]
    forms: tuple[re.Pattern[str], ...]
    """Patterns that match CUDA and torch in local versions."""

    @property
    def empty_pages(self) -> dict[str, tuple[Wheel, ...]]:
        """Empty pages for names that the default index does not have."""
        return {name: () for name, row in self.rows.items() if row.unclaimed}

    def redirect_hosts(self, host: str) -> set[str]:
        """Return the hosts to which a file host may redirect."""
        hosts = set[str]()
        for source in self.sources.values():
            if host in source.hosts:
                hosts |= source.hosts
        return hosts

    def parse_file(self, wheel: Wheel, source: ExtensionSource) -> ExtensionFile:
        """Parse the CUDA and torch versions in a wheel's local version."""
        for form in self.forms:
            match = form.fullmatch(wheel.version.local or "")
            if match:
                break
        else:
            return ExtensionFile(wheel, source)
        named = match.groupdict()
        cuda = named.get("cuda")
        # 128 is CUDA 12.8, and 12 is any CUDA 12.
        if cuda and len(cuda) == 3:
            cuda = f"{cuda[:2]}.{cuda[2]}"
        torch = named.get("torch")
        # 211 is torch 2.11.
        if torch and "." not in torch:
            torch = f"{torch[0]}.{torch[1:]}"
        return ExtensionFile(
            wheel,
            source,
            cuda,
            torch,
            cpu=bool(named.get("cpu")),
            and_newer=bool(named.get("and_newer")),
        )


@cache
def load_extensions() -> Extensions:
    """Load the shipped table of extensions."""
    table = data_files.read_data("extensions.toml")
    sources = {row["id"]: row for row in table["sources"]}
    rows = {}
    for row in table["extensions"]:
        own_sources = [sources[name] for name in row["sources"]]
        rows[row["name"]] = read_object(Extension, {**row, "sources": own_sources})
    return Extensions(
        rows,
        sources={
            name: read_object(ExtensionSource, row) for name, row in sources.items()
        },
        forms=tuple(map(re.compile, table["local"]["forms"])),
    )


class ExtensionListing(Value):
    """The wheels that an extension's sources list."""

    files: tuple[ExtensionFile, ...]
    silent: tuple[str, ...] = ()


def list_files(
    extension: Extension,
    torches: Iterable[TorchKey],
    sources: Sources,
    client: Client,
) -> ExtensionListing:
    """List the wheels in the sources of an extension.

    Args:
        extension: The extension.
        torches: The builds of torch for which to list files.
        sources: The sources, with the default index.
        client: The HTTP client.

    Raises:
        InstallationError: A source rejects the request, sends a malformed page, or, if
            the user requested it, has no page.
    """
    keys = tuple(dict.fromkeys(torches))
    table = load_extensions()
    files: dict[str, ExtensionFile] = {}
    silent: list[str] = []
    for source in extension.sources:
        try:
            wheels = list(_read_wheels(source, extension.name, keys, sources, client))
        except UnreachableError as error:
            silent.append(error.host)
            continue
        named = [wheel for wheel in wheels if wheel.package == extension.name]
        # If several sources list a file, the first one has priority.
        files = {wheel.url: table.parse_file(wheel, source) for wheel in named} | files
    return ExtensionListing(tuple(files.values()), tuple(silent))


def _read_wheels(
    source: ExtensionSource,
    name: str,
    keys: Iterable[TorchKey],
    sources: Sources,
    client: Client,
) -> Iterator[Wheel]:
    if source.url is None:
        yield from read_default_wheels(sources, client, name)
        return
    form = source.url.replace("{name}", name)
    addresses = []
    for key, tag in product(keys, source.tags):
        if source.os not in {None, key.os}:
            continue
        address = form.replace("{minor}", key.minor)
        address = address.replace("{backend}", key.backend)
        address = address.replace("{tag}", tag)
        addresses.append(address)
    answers = map_concurrently(client.page, dict.fromkeys(addresses), PAGES_AT_ONCE)
    pages = list(filter(None, answers))
    if source.id == NAMED and not pages:
        message = f"no page of extensions found at {source.url}"
        raise InstallationError("extension-source", message)
    for page in pages:
        yield from parse_page(page, source=source.id)
