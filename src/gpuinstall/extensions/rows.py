"""Which sources may have an extension, how their files are named (``extensions.toml``), and what they list."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.catalog.listing import default_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.errors import InstallationError
from gpuinstall.threads import side_by_side
from gpuinstall.web import Client, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuinstall.catalog import Wheel
    from gpuinstall.sources import Sources

PAGES_AT_ONCE = 8
Beside = tuple[str, str]
"""A minor release of torch and its backend: what the pages of a source are called by."""
NAMED = "named"
"""The id of a source that the user names."""


class ExtensionSource(NamedTuple):
    """A place of prebuilt files; ``url`` is the form of its pages' addresses, None for the default index."""

    id: str
    rank: int
    hashed: bool
    url: str | None = None


class Extension(NamedTuple):
    """A package and all the places that its files may come from; the file says what the rest means."""

    name: str
    sources: tuple[ExtensionSource, ...]
    lowest: str | None = None
    optional_for: frozenset[str] = frozenset()
    proof: str | None = None
    unclaimed: bool = False


class ExtensionFile(NamedTuple):
    """A file of a source; ``cuda`` (``12``, ``12.8``) and ``torch`` (``2.11``) are what its name says, if anything."""

    wheel: Wheel
    source: ExtensionSource
    cuda: str | None = None
    torch: str | None = None
    cpu: bool = False


@dataclass(frozen=True)
class Extensions:
    """The table: the extensions by name, and the forms in which a version names CUDA and torch."""

    rows: Mapping[str, Extension]
    sources: Mapping[str, ExtensionSource]
    forms: tuple[re.Pattern[str], ...]

    @property
    def unclaimed(self) -> dict[str, tuple[Wheel, ...]]:
        """What the default index has of the names that anyone may fill there: nothing that is asked for."""
        return {name: () for name, row in self.rows.items() if row.unclaimed}

    def file(self, wheel: Wheel, source: ExtensionSource) -> ExtensionFile:
        """Say of a file what its version names behind the ``+``."""
        matches = (form.fullmatch(wheel.version.local or "") for form in self.forms)
        named: dict[str, Any] = next((match.groupdict() for match in matches if match), {})
        cuda, torch = named.get("cuda"), named.get("torch")
        if cuda and len(cuda) == 3:
            cuda = f"{cuda[:2]}.{cuda[2]}"
        if torch and "." not in torch:
            torch = f"{torch[0]}.{torch[1:]}"
        return ExtensionFile(wheel, source, cuda, torch, bool(named.get("cpu")))


@cache
def load_extensions() -> Extensions:
    """Load the table as shipped."""
    from pathlib import Path

    import tomli

    table = tomli.loads(Path(__file__).with_name("extensions.toml").read_text("utf-8"))
    for row in (*table["sources"], *table["extensions"]):
        row.pop("evidence", None)
    sources = {row["id"]: ExtensionSource(**row) for row in table["sources"]}
    rows = dict[str, Extension]()
    for row in table["extensions"]:
        places, users = (sources[name] for name in row["sources"]), frozenset(row.get("optional_for", ()))
        rows[row["name"]] = Extension(**row | {"sources": tuple(places), "optional_for": users})
    return Extensions(rows, sources, tuple(map(re.compile, table["local"]["forms"])))


class ExtensionListing(NamedTuple):
    """The files of an extension, and the hosts that did not answer."""

    files: tuple[ExtensionFile, ...]
    silent: tuple[str, ...] = ()


def list_files(extension: Extension, beside: Iterable[Beside], sources: Sources, client: Client) -> ExtensionListing:
    """Ask every source that may have an extension, and no other; a page that is not there lists nothing.

    Raise InstallationError where one refuses us or talks nonsense, or one that the user named has no page at all.
    """
    places = tuple(dict.fromkeys(beside))
    files: dict[str, ExtensionFile] = {}
    silent: list[str] = []
    for source in extension.sources:
        try:
            wheels = list(_wheels(source, extension.name, places, sources, client))
        except UnreachableError as error:
            silent.append(error.host)
            continue
        named = (wheel for wheel in wheels if wheel.package == extension.name)
        files = {wheel.url: load_extensions().file(wheel, source) for wheel in named} | files
    return ExtensionListing(tuple(files.values()), tuple(silent))


def _wheels(
    source: ExtensionSource, name: str, beside: Iterable[Beside], sources: Sources, client: Client
) -> Iterator[Wheel]:
    if source.url is None:
        yield from default_wheels(sources, client, name)
        return
    form = source.url.replace("{name}", name)
    addresses = dict.fromkeys(form.replace("{minor}", minor).replace("{backend}", tag) for minor, tag in beside)
    pages = list(filter(None, side_by_side(client.page, addresses, PAGES_AT_ONCE)))
    if source.id == NAMED and not pages:
        raise InstallationError("extension-source", f"there is no page of extensions at {source.url}")
    for page in pages:
        yield from parse_page(page, source=source.id)
