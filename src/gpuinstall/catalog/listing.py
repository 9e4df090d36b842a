"""What the sources list today: every page asked for at once, and a host that does not answer asked only once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from gpuinstall.catalog.build import DEFAULT_INDEX
from gpuinstall.catalog.pages import Wheel, parse_folder, parse_page
from gpuinstall.web import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuinstall.sources import Sources
    from gpuinstall.web import Client

__all__ = ["Listing", "Silent", "Wheel", "family_wheels", "read_listing"]

_AT_ONCE = 16


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
    """Ask the sources for ``packages``, the torch index for each of ``backends``.

    A page that is not there lists nothing. Raise InstallationError where a source refuses us or talks nonsense.
    """
    tags, names = tuple(dict.fromkeys(backends)), tuple(dict.fromkeys(packages))
    pages = [partial(_from_index, client, sources.torch_index, tag, name) for tag in tags for name in names]
    links = [partial(_from_link, client, place, names) for place in sources.find_links]
    default = [partial(_from_default, client, sources.default_index, name) for name in names if sources.default_index]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = [pool.map(_answered, asks) for asks in (pages, links, default)]
        from_index, from_links, from_default = map(list, asked)
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
    """List one package of the family for one backend, as ``read_listing`` does."""
    return read_listing(sources, client, (backend,), (package,)).wheels


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
            wheels = parse_page(page.text, page.content_type, page.url, backend=backend, source=source)
            return _only(wheels, (package,))
    return ()


def _from_default(client: Client, index: str, package: str) -> tuple[Wheel, ...]:
    return _only(_read(client, f"{index}/{package}/", DEFAULT_INDEX), (package,))


def _from_link(client: Client, place: str, packages: tuple[str, ...]) -> tuple[Wheel, ...]:
    return _only(_read(client, place, place), packages)


def _read(client: Client, place: str, source: str) -> tuple[Wheel, ...]:
    """Read a page or a folder; one that is not there or may not be read lists nothing."""
    if not place.startswith(("http://", "https://")):
        return _read_folder(_folder(place), source)
    page = client.page(place)
    return parse_page(page.text, page.content_type, page.url, source=source) if page else ()


def _read_folder(folder: Path, source: str) -> tuple[Wheel, ...]:
    page = folder if folder.suffix == ".html" else folder / "index.html"
    try:
        if page.is_file():
            return parse_page(page.read_text("utf-8", "replace"), "text/html", page.as_uri(), source=source)
        return parse_folder(sorted(path.name for path in folder.iterdir()), folder, source)
    except OSError:
        return ()


def _folder(place: str) -> Path:
    return Path(url2pathname(urlsplit(place).path)) if place.startswith("file:") else Path(place)


def _only(wheels: Iterable[Wheel], packages: tuple[str, ...]) -> tuple[Wheel, ...]:
    return tuple(wheel for wheel in wheels if wheel.package in packages)
