"""What the sources list today, every page asked for at once, and the catalogue as they have it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from functools import partial
from itertools import chain, product
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.version import Version

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.location import Location, file_path
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import names_of
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import Backend, known_backend
from gpuinstall.catalog.catalog import (
    COMPANIONS,
    DEFAULT_INDEX,
    Build,
    Catalog,
    Wheel,
    WheelSource,
    platform_of,
    toolkit_of,
)
from gpuinstall.catalog.pages import parse_folder, parse_names, parse_page
from gpuinstall.sources import Sources
from gpuinstall.sources.web import OFFLINE, Client, Page, UnreachableError

if TYPE_CHECKING:
    from packaging.tags import Tag

_Key = tuple[Version, Backend]
_Sources = Mapping[WheelSource, list[Wheel]]
_Listed = Mapping[_Key, _Sources]
_Wheels = tuple[Wheel, ...]


class Listing(Value):
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

    Args:
        sources: Where packages may come from.
        client: What asks them.
        backends: The tags of the pages of the torch index.
        packages: The packages that are listed.

    Raises:
        InstallationError: if a source refuses us or sends what is no page.
    """
    tags = tuple(dict.fromkeys(backends))
    names = tuple(dict.fromkeys(packages))
    index = [
        partial(_from_index, client, sources.torch_index, tag, name)
        for tag, name in product(tags, names)
    ]
    links = [
        partial(_read, client, place, place, names) for place in sources.find_links
    ]
    default = []
    if sources.default_index and "torch" in names:
        default.append(partial(default_wheels, sources, client, "torch"))

    # A torch index that the user named comes before the links, and else after them.
    if sources.is_torch_index_requested:
        asks = index + links + default
    else:
        asks = links + index + default
    silent = {}
    wheels: dict[Wheel, None] = {}
    for ask, answer in zip(asks, side_by_side(_answer, asks), strict=True):
        if isinstance(answer, UnreachableError):
            silent[ask] = answer
        else:
            wheels.update(dict.fromkeys(answer))
    return Listing(
        wheels=tuple(wheels),
        backends=frozenset(tags),
        packages=frozenset(names),
        index_answers=silent.keys().isdisjoint(index),
        default_listed=any(ask not in silent for ask in default),
        silent=tuple({error.host: error for error in silent.values()}.values()),
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
    """Return what the family's own sources list of one package for one backend.

    Args:
        sources: The torch index and the find-links; the default index is left out.
        client: What asks them.
        backend: The tag of the backend.
        package: A package of the family.
    """
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


def is_own_name(
    sources: Sources,
    client: Client,
    name: str,
    backend: str,
) -> bool:
    """Return whether the torch index hosts the files of a package.

    It lists other packages with files of the default index.

    Args:
        sources: The torch index.
        client: The HTTP client.
        name: The package.
        backend: The tag of the backend.
    """
    own_hosts = _hosts(sources, client, backend, "torch")
    own_hosts.add(Location.parse(sources.torch_index).server)
    return bool(own_hosts & _hosts(sources, client, backend, name))


def _hosts(
    sources: Sources,
    client: Client,
    backend: str,
    package: str,
) -> set[str]:
    """Return the hosts of the files that the torch index lists of a package."""
    with suppress(UnreachableError):
        wheels = _from_index(client, sources.torch_index, backend, package)
        return {Location.parse(wheel.url).server for wheel in wheels}
    return set()


def _from_index(
    client: Client,
    base: str,
    backend: str,
    package: str,
) -> _Wheels:
    """Read a package's page, or the flat page of a mirror that has no other.

    Args:
        client: What asks the index.
        base: The address below which the pages of all backends lie.
        backend: The tag of one.
        package: The package.
    """
    source = f"{base}/{backend}"
    for url in (f"{source}/{package}/", f"{source}/"):
        wheels = _read(client, url, source, (package,), backend)
        if wheels:
            return wheels
    return ()


def _read(
    client: Client,
    place: str,
    source: WheelSource,
    packages: Sequence[str],
    backend: str | None = None,
) -> _Wheels:
    """Read some packages on a page or in a folder; none if it is not there or may not be read.

    Args:
        client: What asks for a page.
        place: An address, or the path of a folder.
        source: What its wheels are said to come from.
        packages: Those that count.
        backend: What a wheel without a label is for, by the place of a page.
    """
    if place.startswith(("http://", "https://")):
        page = client.page(place)
        wheels = parse_page(page, backend=backend, source=source) if page else ()
    else:
        if place.startswith("file:"):
            place = file_path(urlsplit(place).path)
        wheels = _read_folder(Path(place), source)
    return tuple(wheel for wheel in wheels if wheel.package in packages)


def _read_folder(
    folder: Path,
    source: WheelSource,
) -> _Wheels:
    file = folder if folder.suffix == ".html" else folder / "index.html"
    try:
        if isfile(file):
            text = file.read_text("utf-8", "replace")
            page = Page(text, "text/html", file.as_uri())
            return parse_page(page, source=source)
        names = sorted(path.name for path in folder.iterdir())
        return parse_folder(names, folder, source)
    except OSError:
        return ()


_PLATFORMS = {
    "linux": re.compile(r"(?:linux|manylinux[0-9_]*)_(x86_64|aarch64)"),
    "macos": re.compile(r"macosx_[0-9]+_[0-9]+_(x86_64|arm64)"),
    "windows": re.compile(r"win_(amd64|arm64)"),
}


def narrowed(
    builds: Collection[Build],
    listing: Listing,
    platform: str,
) -> tuple[Build, ...]:
    """Return the builds of a platform as the sources have them, one for each source.

    Other platforms stay. A build that the index has withdrawn, or that no source that answers has,
    is marked so; a build that only the listing knows has its wheels.

    Args:
        builds: Those of the catalogue.
        listing: What the sources list.
        platform: As the catalogue names it.
    """
    kinds = {build.backend.kind for build in builds}
    known = [build for build in builds if build.platform == platform]
    narrowed = [build for build in builds if build.platform != platform]
    listed = _by_build(listing.wheels, known, platform)
    for build in known:
        by_source = listed.get((build.torch, build.backend), {})
        narrowed += _as_listed(build, by_source, listing)
    for build in _unknown(listed, known, platform):
        if build.backend.kind in kinds and not build.torch.is_prerelease:
            narrowed.append(build)
    return tuple(narrowed)


def offered(
    listing: Listing,
    platform: str,
) -> dict[tuple[str, str], frozenset[str]]:
    """Return the versions, with labels, listed for a platform, by companion and backend."""
    keys = product(listing.packages - {"torch"}, listing.backends)
    offered = dict.fromkeys(keys, frozenset[str]())
    for wheel in listing.wheels:
        key = wheel.package, wheel.backend or ""
        if key in offered and platform in platforms(wheel.tags):
            offered[key] |= {str(wheel.version)}
    return offered


def _by_build(
    wheels: Iterable[Wheel],
    known: Iterable[Build],
    platform: str,
) -> _Listed:
    """Return torch's wheels for a platform by build and source, the first source first.

    What the default index has counts only where no other source has it.

    Args:
        wheels: What the sources list.
        known: The builds of the catalogue: they tell which backend a torch without a label has.
        platform: As the catalogue names it.
    """
    defaults = {build.torch: build.backend for build in known if build.on_default_index}
    newest = max(defaults, default=Version("0"))
    by_build: dict[_Key, dict[WheelSource, list[Wheel]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for wheel in wheels:
        if wheel.package != "torch" or platform not in platforms(wheel.tags):
            continue
        torch = Version(wheel.version.public)
        # On the default index a torch newer than all that are known is taken for what it was last.
        backend = known_backend(wheel.backend) or defaults.get(min(torch, newest))
        if backend is not None:
            by_build[torch, backend][wheel.source].append(wheel)
    for by_source in by_build.values():
        if len(by_source) > 1:
            by_source.pop(DEFAULT_INDEX, None)
    return by_build


def _from_source(build: Build, source: WheelSource, wheels: Sequence[Wheel]) -> Build:
    """Return a build as the wheels of a source have it."""
    return replace(
        build,
        source=source,
        pythons=_pythons(wheels),
        labelled=wheels[0].version.local is not None,
        macos=_macos_floor(wheels) or build.macos,
    )


def _as_listed(
    build: Build,
    by_source: _Sources,
    listing: Listing,
) -> Iterator[Build]:
    for source, wheels in by_source.items():
        yield _from_source(build.published(), source, wheels)
    if by_source:
        return
    was_asked_for = build.backend.tag in listing.backends
    if build.listed_at or (not was_asked_for and listing.index_answers):
        # Of an index of its own nothing was asked, nor of torch's about another backend.
        yield build
    elif build.on_default_index and not listing.default_listed:
        yield replace(
            build,
            source=DEFAULT_INDEX,
            labelled=False,
        )
    else:
        yield replace(
            build, absent="withdrawn" if listing.index_answers else "unreachable"
        )


def _unknown(
    listed: _Listed,
    known: Iterable[Build],
    platform: str,
) -> Iterator[Build]:
    os, arch = platform.split("_", 1)
    known_keys = {(build.torch, build.backend) for build in known}
    for key, by_source in listed.items():
        if key in known_keys:
            continue
        torch, backend = key
        for source, wheels in by_source.items():
            build = Build(
                torch,
                backend,
                os,
                arch,
                toolkit=toolkit_of(backend.version),
                glibc=platform_floor(wheels[0].tags, "manylinux"),
                on_default_index=source == DEFAULT_INDEX,
                unread=tuple(wheels),
            )
            yield _from_source(build, source, wheels)


def unknown_builds(
    wheels: Iterable[Wheel],
    known: Collection[Build],
    platform: str,
) -> Iterator[Build]:
    """Return the builds of a platform that wheels of torch are of, but for those that are ``known``.

    Args:
        wheels: What a source lists.
        known: The builds that are left out; they tell which backend a torch without a label has.
        platform: As the catalogue names it.
    """
    return _unknown(_by_build(wheels, known, platform), known, platform)


def _pythons(wheels: Iterable[Wheel]) -> tuple[str, ...]:
    names = {python(wheel.tags) for wheel in wheels}
    return tuple(sorted(filter(None, names), key=Version))


def platforms(tags: Iterable[Tag]) -> frozenset[str]:
    """Return the platforms that a wheel is for, as the catalogue names them."""
    found = set()
    for tag in tags:
        for os, form in _PLATFORMS.items():
            match = form.fullmatch(tag.platform)
            if match:
                found.add(f"{os}_{match[1]}".replace("amd64", "x86_64"))
    return frozenset(found)


def python(tags: Iterable[Tag]) -> str | None:
    """Return the one CPython ``X.Y`` that a wheel is for; None if that is none, several, or free-threaded."""
    names = {_python(tag) for tag in tags}
    return names.pop() if len(names) == 1 else None


def _python(tag: Tag) -> str | None:
    match = re.fullmatch(r"cp3([0-9]+)", tag.interpreter)
    if match is None or tag.abi == "abi3" or tag.abi.endswith("t"):
        return None
    return f"3.{match[1]}"


def platform_floor(tags: Iterable[Tag], system: str) -> str | None:
    """Return the oldest release of a system, manylinux or macosx, that platform tags allow; None if they name none."""
    floors = []
    for tag in tags:
        match = re.match(rf"{system}_([0-9]+)_([0-9]+)_", tag.platform)
        if match:
            floors.append(f"{match[1]}.{match[2]}")
    return min(
        floors,
        key=Version,
        default=None,
    )


def _macos_floor(wheels: Iterable[Wheel]) -> str | None:
    """Return the oldest macOS that some of the wheels run on; None for another system."""
    return platform_floor(chain.from_iterable(wheel.tags for wheel in wheels), "macosx")


def live_catalog(
    catalog: Catalog,
    machine: Machine,
    request: Request,
    reporter: Reporter,
    *,
    sources: Sources,
    client: Client,
) -> Catalog:
    """Return the catalogue as the sources list it today; warn once of those that are not used.

    The torch index is asked for the backend that was requested, else for the catalogue's and those newer than it.

    Args:
        catalog: The catalogue as shipped, or with what was learned.
        machine: Whose platform counts.
        request: Has the backends that may be chosen, and the companions.
        reporter: Is told which sources are not used.
        sources: Where packages may come from.
        client: What asks them.

    Raises:
        InstallationError: if a source refuses us or sends what is no page.
        UsageError: if the torch index that the user named has no torch.
    """
    for url in sources.extra_indexes:
        reporter.warn(f"the extra index {url} is not used for PyTorch packages")
    index = sources.torch_index
    if request.backend:
        tags = [request.backend]
    else:
        builds = catalog.builds_for(machine.os, machine.arch)
        tags = [build.backend.tag for build in builds]
        tags += _new_tags(index, client, catalog, builds)
        if request.allowed_backends is not None:
            tags = [tag for tag in tags if tag in request.allowed_backends]
    companions = COMPANIONS & names_of(request.requirements)
    listing = read_listing(sources, client, tags, ("torch", *sorted(companions)))
    for silent in listing.silent:
        # Who has asked for a run without a network need not be told that there was none.
        if silent.why != OFFLINE.why:
            unused = f"{silent.host} cannot be reached, {silent.why}"
            reporter.warn(f"{unused}; the other sources are used")
    # The default index's build is not what was asked for; a folder's may be.
    is_listed = any(wheel.source != DEFAULT_INDEX for wheel in listing.wheels)
    if sources.is_torch_index_requested and listing.index_answers and not is_listed:
        tag = request.backend
        if tag:  # which may be what is wrong: the plan says so
            below = f"It must contain {tag}/torch/ or files in {tag}/"
            reporter.warn(f"{index} lists no torch for {tag}: {below}")
        else:
            raise UsageError(
                "torch-index-empty",
                f"{index} lists no torch",
                hint="Give the base of an index that has <backend>/torch/, or files in <backend>/",
            )
    platform = platform_of(machine.os, machine.arch)
    return replace(
        catalog,
        torch_index=index,
        builds=narrowed(catalog.builds, listing, platform),
        offered=offered(listing, platform),
    )


def all_torches(index: str, client: Client) -> Page | None:
    """Return the page of an index that lists the torches of all backends; None if it has none, or does not answer."""
    with suppress(InstallationError):
        return client.page(f"{index}/torch/")
    return None


def _new_tags(
    index: str,
    client: Client,
    catalog: Catalog,
    builds: Iterable[Build],
) -> list[str]:
    """Return the tags unknown to the catalogue that have a torch as new as its newest, if an index has a page of all.

    Args:
        index: The base of the torch index.
        client: What asks it.
        catalog: Has the tags that are known.
        builds: Those of the platform, which tell the newest torch.
    """
    page = all_torches(index, client)
    if page is None:
        return []
    backends = {build.backend for build in catalog.builds}
    kinds = {backend.kind for backend in backends}
    versions = [build.torch for build in builds]
    newest = max(versions, default=Version("0"))
    tags = set()
    # The + of a label stands in a page as itself, or as an address or HTML writes it.
    name = r"torch-([0-9][0-9.]*)(?:\+|%2B|&#43;)([a-z]+[0-9.]*)-"
    for torch, tag in re.findall(name, page.text):
        backend = known_backend(tag)
        if backend is None or backend in backends or backend.kind not in kinds:
            continue
        if Version(torch) >= newest:
            tags.add(tag)
    return sorted(tags)
