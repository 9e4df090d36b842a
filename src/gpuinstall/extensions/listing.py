"""What the sources of an extension list for the builds of torch that run on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.catalog.listing import default_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.errors import InstallationError
from gpuinstall.extensions.rows import NAMED, Extension, ExtensionFile, ExtensionSource, load_extensions
from gpuinstall.threads import side_by_side
from gpuinstall.web import Client, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.catalog import Wheel
    from gpuinstall.sources import Sources

PAGES_AT_ONCE = 8
Beside = tuple[str, str]
"""A minor release of torch and its backend: what the pages of a source are called by."""


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
    addresses = {
        source.url.replace("{minor}", minor).replace("{backend}", tag).replace("{name}", name): None
        for minor, tag in beside
    }
    pages = list(filter(None, side_by_side(client.page, addresses, PAGES_AT_ONCE)))
    if source.id == NAMED and not pages:
        raise InstallationError("extension-source", f"there is no page of extensions at {source.url}")
    for page in pages:
        yield from parse_page(page.text, page.content_type, page.url, source=source.id)
