"""What the sources list today, and the catalogue as they have it: every page asked for at once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from gpuinstall.catalog.catalog import DEFAULT_INDEX, Wheel
from gpuinstall.catalog.pages import parse_folder, parse_names, parse_page
from gpuinstall.location import Location
from gpuinstall.threads import side_by_side
from gpuinstall.web import Client, Page, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gpuinstall.sources import Sources

COMPANIONS = frozenset({"torchaudio", "torchvision"})
"""The packages whose versions the catalogue pairs with torch's."""


@dataclass(frozen=True)
class Silent:
    """A host that did not answer."""

    host: str
    why: str
    hint: str


@dataclass(frozen=True)
class Listing:
    """The wheels that the sources list, those of the first source first.

    The torch index was asked for ``packages`` of ``backends``; ``index_answers`` says whether it did,
    ``default_listed`` that the default index was asked too; ``silent`` are the hosts that did not answer.
    """

    wheels: tuple[Wheel, ...]
    backends: frozenset[str]
    packages: frozenset[str] = frozenset({"torch"})
    index_answers: bool = True
    default_listed: bool = False
    silent: tuple[Silent, ...] = ()


def read_listing(sources: Sources, client: Client, backends: Iterable[str], packages: Iterable[str]) -> Listing:
    """Ask the sources for ``packages``, the torch index for each of ``backends``; the default index for torch alone.

    A page that is not there lists nothing. Raise InstallationError where a source refuses us or talks nonsense.
    """
    tags, names = tuple(dict.fromkeys(backends)), tuple(dict.fromkeys(packages))
    pages = [partial(_from_index, client, sources.torch_index, tag, name) for tag in tags for name in names]
    links = [partial(_read, client, place, place, names) for place in sources.find_links]
    defaults = {"torch"}.intersection(names) if sources.default_index else ()
    default = [partial(default_wheels, sources, client, name) for name in defaults]
    responses = iter(side_by_side(_answered, [*pages, *links, *default]))
    from_index, from_links, from_default = ([next(responses) for _ in asks] for asks in (pages, links, default))
    first, second = (from_index, from_links) if sources.named else (from_links, from_index)
    answers = [*first, *second, *from_default]
    return Listing(
        wheels=tuple(dict.fromkeys(wheel for answer in answers if isinstance(answer, tuple) for wheel in answer)),
        backends=frozenset(tags),
        packages=frozenset(names),
        index_answers=not any(isinstance(answer, Silent) for answer in from_index),
        default_listed=bool(from_default) and not any(isinstance(answer, Silent) for answer in from_default),
        silent=tuple(dict.fromkeys(answer for answer in answers if isinstance(answer, Silent))),
    )


def family_wheels(sources: Sources, client: Client, backend: str, package: str) -> tuple[Wheel, ...]:
    """List what the family's own sources have of one package for one backend."""
    return read_listing(replace(sources, default_index=None), client, (backend,), (package,)).wheels


def default_wheels(sources: Sources, client: Client, package: str) -> tuple[Wheel, ...]:
    """List what the default index has of one package, where one is configured."""
    if sources.default_index is None:
        return ()
    return _read(client, f"{sources.default_index}/{package}/", DEFAULT_INDEX, (package,))


def index_names(sources: Sources, client: Client, backend: str) -> frozenset[str]:
    """The packages that the torch index names for a backend; none where it has no such page, or does not answer."""
    with suppress(UnreachableError):
        if page := client.page(f"{sources.torch_index}/{backend}/"):
            return parse_names(page)
    return frozenset()


def own_names(sources: Sources, client: Client, backend: str, names: Collection[str]) -> frozenset[str]:
    """Those of ``names`` that the torch index has itself: their files lie where torch's do, and not elsewhere."""
    home, *others = side_by_side(partial(_homes, sources, client, backend), ("torch", *names))
    home |= {Location.parse(sources.torch_index).server}
    return frozenset(name for name, hosts in zip(names, others, strict=True) if hosts & home)


def _homes(sources: Sources, client: Client, backend: str, package: str) -> set[str]:
    """The hosts of the files that the torch index lists of a package."""
    listed = _answered(partial(_from_index, client, sources.torch_index, backend, package))
    return {Location.parse(wheel.url).server for wheel in listed} if isinstance(listed, tuple) else set()


def _answered(ask: Callable[[], tuple[Wheel, ...]]) -> tuple[Wheel, ...] | Silent:
    try:
        return ask()
    except UnreachableError as error:
        return Silent(error.host, error.why or "", error.hint or "")


def _from_index(client: Client, base: str, backend: str, package: str) -> tuple[Wheel, ...]:
    """Read a package's page, or the flat page of a mirror that has no other."""
    source = f"{base}/{backend}"
    for url in (f"{source}/{package}/", f"{source}/"):
        if (page := client.page(url)) is not None:
            wheels = parse_page(page, backend=backend, source=source)
            return _only(wheels, (package,))
    return ()


def _read(client: Client, place: str, source: str, packages: tuple[str, ...]) -> tuple[Wheel, ...]:
    """Read the packages on a page or in a folder; one that is not there or may not be read lists nothing."""
    if place.startswith(("http://", "https://")):
        page = client.page(place)
        return _only(parse_page(page, source=source) if page else (), packages)
    folder = Path(url2pathname(urlsplit(place).path)) if place.startswith("file:") else Path(place)
    return _only(_read_folder(folder, source), packages)


def _read_folder(folder: Path, source: str) -> tuple[Wheel, ...]:
    file = folder if folder.suffix == ".html" else folder / "index.html"
    try:
        if file.is_file():
            return parse_page(Page(file.read_text("utf-8", "replace"), "text/html", file.as_uri()), source=source)
        return parse_folder(sorted(path.name for path in folder.iterdir()), folder, source)
    except OSError:
        return ()


def _only(wheels: Iterable[Wheel], packages: tuple[str, ...]) -> tuple[Wheel, ...]:
    return tuple(wheel for wheel in wheels if wheel.package in packages)
