"""Which sources may have an extension, how their files are named, and what they list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from typing import NamedTuple

from gpuinstall.base.codec import WordSet, read_object
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import Value
from gpuinstall.catalog import Wheel, authored
from gpuinstall.catalog.listing import default_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.sources import Sources
from gpuinstall.sources.web import Client, UnreachableError

PAGES_AT_ONCE = 8
NAMED = "named"
"""The id of a source that the user names."""


class Beside(NamedTuple):
    """What an extension runs beside, by which the pages of a source are called."""

    minor: str
    """The minor release of torch."""

    backend: str
    os: str


class ExtensionSource(NamedTuple):
    """A place of prebuilt files."""

    id: str
    rank: int
    url: str | None = None
    """The form of its pages' addresses; None: the default index."""

    os: str | None = None
    """The operating system that it is asked for; None: all."""

    tags: tuple[str, ...] = ("",)
    """The releases of a repository that have a page each."""

    hosts: WordSet = frozenset()
    """Where its files lie if not beside its pages: they may redirect to each other."""


class Extension(NamedTuple):
    """A package and the places that its files may come from; the file explains the rest."""

    name: str
    sources: tuple[ExtensionSource, ...]
    lowest: str | None = None
    optional_for: WordSet = frozenset()
    unclaimed: bool = False


class ExtensionFile(NamedTuple):
    """A file of a source, and what its name says of it, if anything."""

    wheel: Wheel
    source: ExtensionSource
    cuda: str | None = None
    """As in ``12`` and ``12.8``."""
    torch: str | None = None
    """As in ``2.11``."""
    cpu: bool = False
    and_newer: bool = False
    """Whether it is for newer releases of torch too."""


class Extensions(Value):
    """The table."""

    rows: Mapping[str, Extension]
    """The extensions by name."""
    sources: Mapping[str, ExtensionSource]
    forms: tuple[re.Pattern[str], ...]
    """How a version names CUDA and torch."""

    @property
    def unclaimed(self) -> dict[str, tuple[Wheel, ...]]:
        """What may be taken from the default index of the names that anyone may fill: nothing."""
        return {name: () for name, row in self.rows.items() if row.unclaimed}

    def hosts_beside(self, host: str) -> set[str]:
        """Return where a host may redirect to: all hosts of the sources that have files there."""
        hosts = set[str]()
        for source in self.sources.values():
            if host in source.hosts:
                hosts |= source.hosts
        return hosts

    def file(self, wheel: Wheel, source: ExtensionSource) -> ExtensionFile:
        """Return a file with what its version names behind the ``+``."""
        for form in self.forms:
            match = form.fullmatch(wheel.version.local or "")
            if match:
                break
        else:
            return ExtensionFile(wheel, source)
        named = match.groupdict()
        cuda = named.get("cuda")
        # 128 stands for 12.8, and 12 for all of CUDA 12.
        if cuda and len(cuda) == 3:
            cuda = f"{cuda[:2]}.{cuda[2]}"
        torch = named.get("torch")
        # 211 stands for 2.11.
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
    """Return the table as shipped."""
    table = authored.read_data("extensions.toml")
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


class ExtensionListing(NamedTuple):
    """The files of an extension, and the hosts that did not answer."""

    files: tuple[ExtensionFile, ...]
    silent: tuple[str, ...] = ()


def list_files(
    extension: Extension,
    beside: Iterable[Beside],
    sources: Sources,
    client: Client,
) -> ExtensionListing:
    """Ask every source that may have an extension; a page that is not there lists nothing.

    Args:
        extension: The extension.
        beside: What its files are to run beside.
        sources: The default index, which is the source of some.
        client: What asks them.

    Raises:
        InstallationError: if a source refuses us or sends what is no page, or one that the user
            named has no page at all.
    """
    places = tuple(dict.fromkeys(beside))
    table = load_extensions()
    files: dict[str, ExtensionFile] = {}
    silent: list[str] = []
    for source in extension.sources:
        try:
            wheels = list(_wheels(source, extension.name, places, sources, client))
        except UnreachableError as error:
            silent.append(error.host)
            continue
        named = [wheel for wheel in wheels if wheel.package == extension.name]
        # A file that an earlier source lists too stays that one's.
        files = {wheel.url: table.file(wheel, source) for wheel in named} | files
    return ExtensionListing(tuple(files.values()), tuple(silent))


def _wheels(
    source: ExtensionSource,
    name: str,
    beside: Iterable[Beside],
    sources: Sources,
    client: Client,
) -> Iterator[Wheel]:
    if source.url is None:
        yield from default_wheels(sources, client, name)
        return
    form = source.url.replace("{name}", name)
    addresses = []
    for place, tag in product(beside, source.tags):
        if source.os not in {None, place.os}:
            continue
        address = form.replace("{minor}", place.minor)
        address = address.replace("{backend}", place.backend)
        address = address.replace("{tag}", tag)
        addresses.append(address)
    answers = side_by_side(client.page, dict.fromkeys(addresses), PAGES_AT_ONCE)
    pages = list(filter(None, answers))
    if source.id == NAMED and not pages:
        message = f"there is no page of extensions at {source.url}"
        raise InstallationError("extension-source", message)
    for page in pages:
        yield from parse_page(page, source=source.id)
