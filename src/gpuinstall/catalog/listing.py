"""What the sources list today: every page is asked for at once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpuinstall.base.location import Location, file_path
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import dataclass
from gpuinstall.catalog.catalog import DEFAULT_INDEX, Wheel
from gpuinstall.catalog.pages import parse_folder, parse_names, parse_page
from gpuinstall.sources.web import Client, Page, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gpuinstall.catalog.catalog import WheelSource
    from gpuinstall.sources import Sources

    _Wheels = tuple[Wheel, ...]

COMPANIONS = frozenset({"torchaudio", "torchvision"})
"""The packages whose versions the catalogue pairs with torch's."""


@dataclass(frozen=True)
class Listing:
    """The wheels that the sources list, those of the first source first."""

    wheels: tuple[Wheel, ...]
    backends: frozenset[str]
    """The backends that the torch index was asked for."""
    packages: frozenset[str] = frozenset({"torch"})
    """The packages that the sources were asked for."""
    index_answers: bool = True
    """Whether every page of the torch index answered."""
    default_listed: bool = False
    """Whether the default index was asked too, and answered."""
    silent: tuple[UnreachableError, ...] = ()
    """The hosts that did not answer, each once."""


def read_listing(
    sources: Sources,
    client: Client,
    backends: Iterable[str],
    packages: Iterable[str],
) -> Listing:
    """Ask the torch index for packages of some backends, and the other sources for the packages.

    A page that is not there lists nothing. The default index is asked for torch alone.

    Raises:
        InstallationError: if a source refuses us or sends what is no page.
    """
    tags = tuple(dict.fromkeys(backends))
    names = tuple(dict.fromkeys(packages))
    index = [
        partial(_from_index, client, sources.torch_index, tag, name)
        for tag in tags
        for name in names
    ]
    links = [partial(_read, client, place, place, names) for place in sources.find_links]
    default = []
    if sources.default_index and "torch" in names:
        default.append(partial(default_wheels, sources, client, "torch"))

    # A torch index that the user named comes before the links, and else after them.
    first, second = (index, links) if sources.is_torch_index_requested else (links, index)
    asks = [*first, *second, *default]
    answers = dict(zip(asks, side_by_side(_answer, asks), strict=True))
    silent: dict[str, UnreachableError] = {}
    wheels: list[Wheel] = []
    for answer in answers.values():
        if isinstance(answer, UnreachableError):
            silent[answer.host] = answer
        else:
            wheels += answer
    return Listing(
        wheels=tuple(dict.fromkeys(wheels)),
        backends=frozenset(tags),
        packages=frozenset(names),
        index_answers=not any(isinstance(answers[ask], UnreachableError) for ask in index),
        default_listed=any(not isinstance(answers[ask], UnreachableError) for ask in default),
        silent=tuple(silent.values()),
    )


def _answer(ask: Callable[[], _Wheels]) -> _Wheels | UnreachableError:
    try:
        return ask()
    except UnreachableError as error:
        return error


def family_wheels(
    sources: Sources,
    client: Client,
    backend: str,
    package: str,
) -> tuple[Wheel, ...]:
    """Return what the family's own sources list of one package for one backend."""
    own_sources = replace(sources, default_index=None)
    return read_listing(own_sources, client, (backend,), (package,)).wheels


def default_wheels(
    sources: Sources,
    client: Client,
    package: str,
) -> tuple[Wheel, ...]:
    """Return what the default index, if there is one, lists of one package."""
    if sources.default_index is None:
        return ()
    place = f"{sources.default_index}/{package}/"
    return _read(client, place, DEFAULT_INDEX, (package,))


def index_names(
    sources: Sources,
    client: Client,
    backend: str,
) -> frozenset[str]:
    """Return the packages that the torch index names for a backend; none if it does not answer."""
    with suppress(UnreachableError):
        page = client.page(f"{sources.torch_index}/{backend}/")
        if page:
            return parse_names(page)
    return frozenset()


def own_names(
    sources: Sources,
    client: Client,
    backend: str,
    names: Collection[str],
) -> frozenset[str]:
    """Return those of ``names`` whose files the torch index has itself, beside torch's."""
    read_hosts = partial(_hosts, sources, client, backend)
    own_hosts, *others = side_by_side(read_hosts, ("torch", *names))
    own_hosts.add(Location.parse(sources.torch_index).server)
    own = set()
    for name, hosts in zip(names, others, strict=True):
        if not hosts.isdisjoint(own_hosts):
            own.add(name)
    return frozenset(own)


def _hosts(
    sources: Sources,
    client: Client,
    backend: str,
    package: str,
) -> set[str]:
    """Return the hosts of the files that the torch index lists of a package."""
    try:
        wheels = _from_index(client, sources.torch_index, backend, package)
    except UnreachableError:
        return set()
    return {Location.parse(wheel.url).server for wheel in wheels}


def _from_index(
    client: Client,
    base: str,
    backend: str,
    package: str,
) -> _Wheels:
    """Read a package's page, or the flat page of a mirror that has no other."""
    source = f"{base}/{backend}"
    for url in (f"{source}/{package}/", f"{source}/"):
        page = client.page(url)
        if page is not None:
            wheels = parse_page(
                page,
                backend=backend,
                source=source,
            )
            return _only(wheels, (package,))
    return ()


def _read(
    client: Client,
    place: str,
    source: WheelSource,
    packages: Sequence[str],
) -> _Wheels:
    """Read some packages on a page or in a folder; none if it is not there or may not be read."""
    if place.startswith(("http://", "https://")):
        page = client.page(place)
        wheels = parse_page(page, source=source) if page else ()
    elif place.startswith("file:"):
        path = file_path(urlsplit(place).path)
        wheels = _read_folder(Path(path), source)
    else:
        wheels = _read_folder(Path(place), source)
    return _only(wheels, packages)


def _read_folder(
    folder: Path,
    source: WheelSource,
) -> _Wheels:
    file = folder if folder.suffix == ".html" else folder / "index.html"
    try:
        if file.is_file():
            text = file.read_text("utf-8", "replace")
            page = Page(text, "text/html", file.as_uri())
            return parse_page(page, source=source)
        names = sorted(path.name for path in folder.iterdir())
        return parse_folder(names, folder, source)
    except OSError:
        return ()


def _only(
    wheels: Iterable[Wheel],
    packages: Sequence[str],
) -> _Wheels:
    return tuple(wheel for wheel in wheels if wheel.package in packages)
