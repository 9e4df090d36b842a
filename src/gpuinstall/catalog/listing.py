"""Read the index pages of all sources, and update the catalog."""

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

from packaging.version import Version

from gpuinstall.base.errors import InstallationError, UnreachableError, UsageError
from gpuinstall.base.location import Location, file_path
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import is_http_url, requirement_names
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import Backend, known_backend, parse_public_version
from gpuinstall.catalog.catalog import (
    COMPANIONS,
    DEFAULT_INDEX,
    Build,
    Catalog,
    Wheel,
    WheelSource,
    parse_toolkit,
    platform_name,
)
from gpuinstall.catalog.pages import parse_folder, parse_names, parse_page
from gpuinstall.sources import Sources

if TYPE_CHECKING:
    from packaging.tags import Tag

    from gpuinstall.sources.web import Client

_Key = tuple[Version, Backend]
_Sources = Mapping[WheelSource, list[Wheel]]
_Listed = Mapping[_Key, _Sources]
_Wheels = tuple[Wheel, ...]


class Listing(Value):
    """The wheels that the sources list, in the order of the sources."""

    wheels: tuple[Wheel, ...]
    backends: frozenset[str]
    """The backends whose pages on the torch index were read."""
    packages: frozenset[str] = frozenset({"torch"})
    """The packages whose pages were read."""
    index_answers: bool = True
    """Whether the torch index was reachable for every request."""
    default_listed: bool = False
    """Whether torch's page on the default index was read."""
    silent: tuple[UnreachableError, ...] = ()
    """The hosts that could not be reached."""
    is_dated: bool = False
    """Whether ``exclude-newer`` limits the builds of torch."""


def read_listing(
    sources: Sources,
    client: Client,
    backends: Iterable[str],
    packages: Iterable[str],
) -> Listing:
    """Read the pages of packages in all sources.

    A page that does not exist counts as empty. On the default index, only torch's page
    is read, unless the torch index is unreachable.

    Args:
        sources: The sources.
        client: The HTTP client.
        backends: The backends of the torch index.
        packages: The packages.

    Raises:
        InstallationError: A source rejects the request or sends a malformed page.
    """
    addresses = sources.addresses
    tags = tuple(dict.fromkeys(backends))
    names = tuple(dict.fromkeys(packages))
    index = [
        partial(_read_index, client, addresses.torch_index, tag, name)
        for tag, name in product(tags, names)
    ]
    links = [
        partial(_read_place, client, place, place, names)
        for place in addresses.find_links
    ]
    default = []
    if addresses.default_index and "torch" in names:
        default.append(partial(read_default_wheels, sources, client, "torch"))

    # The torch index has priority over --find-links only if the user requested it.
    if addresses.is_torch_index_requested:
        reads = index + links + default
    else:
        reads = links + index + default
    last_days = {name: sources.uv.find_last_day(name) for name in names}
    silent = {}
    wheels: dict[Wheel, None] = {}

    def collect(reads: Sequence[Callable[[], _Wheels]]) -> None:
        answers = map_concurrently(_read_or_return_error, reads)
        for read, answer in zip(reads, answers, strict=True):
            if isinstance(answer, UnreachableError):
                silent[read] = answer
            else:
                wheels.update(dict.fromkeys(_exclude_newer(answer, last_days)))

    collect(reads)
    index_answers = silent.keys().isdisjoint(index)
    if not index_answers:
        others = [name for name in names if name != "torch"]
        collect(
            [partial(read_default_wheels, sources, client, name) for name in others]
        )
    return Listing(
        wheels=tuple(wheels),
        backends=frozenset(tags),
        packages=frozenset(names),
        index_answers=index_answers,
        default_listed=any(read not in silent for read in default),
        silent=tuple({error.host: error for error in silent.values()}.values()),
        is_dated=bool(last_days.get("torch")),
    )


def _exclude_newer(
    wheels: Iterable[Wheel], last_days: Mapping[str, str | None]
) -> _Wheels:
    """Return the wheels without those uploaded after a package's last day.

    Wheels without an upload date are kept, because mirrors list none.
    """
    return tuple(
        wheel
        for wheel in wheels
        if wheel.uploaded[:10] <= (last_days[wheel.package] or wheel.uploaded)
    )


def find_family_links(
    sources: Sources, client: Client, family: Collection[str]
) -> frozenset[str]:
    """Return the find-links that list torch-family packages."""
    if not sources.addresses.find_links:
        return frozenset()
    alone = sources.with_default_index(None)
    listed = read_listing(alone, client, (), family).wheels
    return frozenset(str(wheel.source) for wheel in listed)


def _read_or_return_error(read: Callable[[], _Wheels]) -> _Wheels | UnreachableError:
    try:
        return read()
    except UnreachableError as error:
        return error


def read_family_wheels(
    sources: Sources,
    client: Client,
    backend: str,
    package: str,
) -> tuple[Wheel, ...]:
    """Return the wheels of a package in all sources except the default index.

    Args:
        sources: The sources.
        client: The HTTP client.
        backend: The tag of the backend.
        package: A package of the family.
    """
    own_sources = sources.with_default_index(None)
    return read_listing(own_sources, client, (backend,), (package,)).wheels


def read_default_wheels(
    sources: Sources,
    client: Client,
    package: str,
) -> tuple[Wheel, ...]:
    """Return the wheels of a package on the default index, if any."""
    if sources.addresses.default_index is None:
        return ()
    place = f"{sources.addresses.default_index}/{package}/"
    wheels = _read_place(client, place, DEFAULT_INDEX, (package,))
    return _exclude_newer(wheels, {package: sources.uv.find_last_day(package)})


def read_index_names(
    torch_index: str,
    client: Client,
    backend: str,
    *,
    is_optional: bool,
) -> frozenset[str]:
    """Return the packages of the torch index, or none if it is unreachable."""
    read = client.optional_page if is_optional else client.page
    with suppress(UnreachableError):
        page = read(f"{torch_index}/{backend}/")
        if page:
            return parse_names(page)
    return frozenset()


def hosts_package(
    torch_index: str,
    client: Client,
    name: str,
    backend: str,
) -> bool:
    """Return whether the torch index hosts the files of a package.

    Other packages on the torch index have files on the hosts of the default index.

    Args:
        torch_index: The torch index.
        client: The HTTP client.
        name: The package.
        backend: The tag of the backend.
    """
    own_hosts = _find_hosts(torch_index, client, backend, "torch")
    own_hosts.add(Location.parse(torch_index).server)
    return bool(own_hosts & _find_hosts(torch_index, client, backend, name))


def _find_hosts(
    torch_index: str,
    client: Client,
    backend: str,
    package: str,
) -> set[str]:
    """Return the file hosts of a package on the torch index."""
    with suppress(UnreachableError):
        wheels = _read_index(client, torch_index, backend, package)
        return {Location.parse(wheel.url).server for wheel in wheels}
    return set()


def _read_index(
    client: Client,
    base: str,
    backend: str,
    package: str,
) -> _Wheels:
    """Read a package's page, or the flat listing of a PyTorch mirror.

    Args:
        client: The HTTP client.
        base: The torch index.
        backend: The tag of the backend.
        package: The package.
    """
    source = f"{base}/{backend}"
    for url in (f"{source}/{package}/", f"{source}/"):
        wheels = _read_place(client, url, source, (package,), backend)
        if wheels:
            return wheels
    return ()


def _read_place(
    client: Client,
    place: str,
    source: WheelSource,
    packages: Sequence[str],
    backend: str | None = None,
) -> _Wheels:
    """Read the wheels of packages from an index page or a folder.

    Args:
        client: The HTTP client.
        place: A URL, or the path of a folder.
        source: The configured source of the wheels.
        packages: The packages.
        backend: The tag of wheels without a label.
    """
    if is_http_url(place):
        page = client.page(place)
        wheels = parse_page(page, backend=backend, source=source) if page else ()
    else:
        wheels = _read_folder(file_path(place), source)
    return tuple(wheel for wheel in wheels if wheel.package in packages)


def _read_folder(
    folder: Path,
    source: WheelSource,
) -> _Wheels:
    file = folder if folder.suffix == ".html" else folder / "index.html"
    try:
        if isfile(file):
            from gpuinstall.sources.web import Page

            text = file.read_text("utf-8", "replace")
            page = Page(text, "text/html", file.as_uri())
            return parse_page(page, source=source)
        paths = sorted(folder.iterdir())
    except OSError:
        return ()
    for path in paths:
        # uv would wait for a named pipe.
        if path.suffix in _ARCHIVES and not isfile(path):
            raise UsageError(
                "find-links-special", f"find-links: {path} is not a regular file"
            )
    return parse_folder([path.name for path in paths], folder, source)


_ARCHIVES = {".whl", ".gz", ".zip"}
_PLATFORMS = {
    "linux": r"(?:linux|manylinux[0-9_]*)_(x86_64|aarch64)",
    "macos": r"macosx_[0-9]+_[0-9]+_(x86_64|arm64)",
    "windows": r"win_(amd64|arm64)",
}


def update_builds(
    builds: Collection[Build],
    listing: Listing,
    platform: str,
) -> tuple[Build, ...]:
    """Update a platform's builds from the listing of the sources.

    Unavailable builds are marked as withdrawn or unreachable. A build that is not in
    the catalog has its wheels in ``unread``. Builds for other platforms are unchanged.

    Args:
        builds: The builds of the catalog.
        listing: The listing.
        platform: The platform, such as ``linux_x86_64``.
    """
    kinds = {build.backend.kind for build in builds}
    known = [build for build in builds if build.platform == platform]
    update_builds = [build for build in builds if build.platform != platform]
    listed = group_by_build(listing.wheels, known, platform)
    for build in known:
        by_source = listed.get((build.torch, build.backend), {})
        update_builds += _update_build(build, by_source, listing)
    for build in find_unknown_builds(listed, known, platform):
        if build.backend.kind in kinds and not build.torch.is_prerelease:
            update_builds.append(build)
    return tuple(update_builds)


def listed_companions(
    listing: Listing,
    platform: str,
) -> dict[tuple[str, str], frozenset[str]]:
    """Return the companion versions that the sources list."""
    keys = product(listing.packages - {"torch"}, {*listing.backends, ""})
    listed_companions = dict.fromkeys(keys, frozenset[str]())
    for wheel in listing.wheels:
        key = wheel.package, wheel.backend or ""
        if key in listed_companions and platform in platforms(wheel.tags):
            listed_companions[key] |= {str(wheel.version)}
    return listed_companions


def group_by_build(
    wheels: Iterable[Wheel],
    known: Iterable[Build],
    platform: str,
) -> _Listed:
    """Group torch's wheels for a platform by build and source.

    Wheels of the default index are used only for builds that no other source has.

    Args:
        wheels: The wheels of the sources.
        known: The builds of the catalog, which determine the backend of an unlabeled torch.
        platform: The platform, such as ``linux_x86_64``.
    """
    defaults = {build.torch: build.backend for build in known if build.on_default_index}
    newest = max(defaults, default=Version("0"))
    by_build: dict[_Key, dict[WheelSource, list[Wheel]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for wheel in wheels:
        if wheel.package != "torch" or platform not in platforms(wheel.tags):
            continue
        torch = parse_public_version(wheel.version)
        # Assume that an unknown torch on the default index has the latest known backend.
        backend = known_backend(wheel.backend) or defaults.get(min(torch, newest))
        if backend is not None:
            by_build[torch, backend][wheel.source].append(wheel)
    for by_source in by_build.values():
        if len(by_source) > 1:
            by_source.pop(DEFAULT_INDEX, None)
    return by_build


def _update_from_source(
    build: Build, source: WheelSource, wheels: Sequence[Wheel]
) -> Build:
    """Update a build of torch from its wheels in one source."""
    tags = chain.from_iterable(wheel.tags for wheel in wheels)
    return replace(
        build,
        source=source,
        pythons=_list_pythons(wheels),
        is_labeled=wheels[0].version.local is not None,
        macos=platform_floor(tags, "macosx") or build.macos,
    )


def _update_build(
    build: Build,
    by_source: _Sources,
    listing: Listing,
) -> Iterator[Build]:
    for source, wheels in by_source.items():
        yield _update_from_source(build.mark_as_published(), source, wheels)
    if by_source:
        return
    was_requested = build.backend.tag in listing.backends
    if build.listed_at or (not was_requested and listing.index_answers):
        # The page of this backend was not read.
        yield build
    elif build.on_default_index and not listing.default_listed:
        yield replace(
            build,
            source=DEFAULT_INDEX,
            is_labeled=False,
        )
    elif listing.is_dated and listing.index_answers:
        yield replace(build, absent="too-new")
    else:
        yield replace(
            build, absent="withdrawn" if listing.index_answers else "unreachable"
        )


def find_unknown_builds(
    listed: _Listed,
    known: Iterable[Build],
    platform: str,
) -> Iterator[Build]:
    """Yield a platform's builds that sources list but the catalog lacks.

    Args:
        listed: The wheels in the sources.
        known: The builds of the catalog.
        platform: The platform, such as ``linux_x86_64``.
    """
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
                toolkit=parse_toolkit(backend.version),
                glibc=platform_floor(wheels[0].tags, "manylinux"),
                on_default_index=source == DEFAULT_INDEX,
                unread=tuple(wheels),
            )
            yield _update_from_source(build, source, wheels)


def _list_pythons(wheels: Iterable[Wheel]) -> tuple[str, ...]:
    names = {python(wheel.tags) for wheel in wheels}
    return tuple(sorted(filter(None, names), key=Version))


def platforms(tags: Iterable[Tag]) -> frozenset[str]:
    """Return the platforms that a wheel supports: ``linux_x86_64``."""
    found = set()
    for tag in tags:
        for os, form in _PLATFORMS.items():
            match = re.fullmatch(form, tag.platform)
            if match:
                found.add(f"{os}_{match[1]}".replace("amd64", "x86_64"))
    return frozenset(found)


def python(tags: Iterable[Tag]) -> str | None:
    """Return the Python ``X.Y`` of a wheel for one CPython version."""
    names = {_parse_python(tag) for tag in tags}
    return names.pop() if len(names) == 1 else None


def _parse_python(tag: Tag) -> str | None:
    match = re.fullmatch(r"cp3([0-9]+)", tag.interpreter)
    if match is None or tag.abi == "abi3" or tag.abi.endswith("t"):
        return None
    return f"3.{match[1]}"


def platform_floor(tags: Iterable[Tag], system: str) -> str | None:
    """Return the lowest glibc or macOS version that platform tags allow."""
    floors = []
    for tag in tags:
        match = re.match(rf"{system}_([0-9]+)_([0-9]+)_", tag.platform)
        if match:
            floors.append(f"{match[1]}.{match[2]}")
    return min(floors, key=Version, default=None)


def read_live_catalog(
    catalog: Catalog,
    machine: Machine,
    request: Request,
    reporter: Reporter,
    *,
    excluded: Collection[str],
    sources: Sources,
    client: Client,
) -> Catalog:
    """Update the catalog from the listings of the sources.

    If no backend is requested, the pages of all backends in the catalog and of newer
    backends are read.

    Args:
        catalog: The catalog.
        machine: The machine, which determines the platform.
        request: The request, which determines backends and companions.
        reporter: Receives a warning for each unused source.
        excluded: The backends to skip, because none of their builds can be selected.
        sources: The sources.
        client: The HTTP client.

    Raises:
        InstallationError: A source rejects the request or sends a malformed page.
        UsageError: The requested torch index or the find-links have no torch.
    """
    addresses = sources.addresses
    for url in addresses.extra_indexes:
        reporter.warn(f"the extra index {url} is not used for PyTorch packages")
    index = addresses.torch_index
    if request.backend:
        tags = [request.backend]
    else:
        builds = catalog.builds_for(machine.os, machine.arch)
        allowed = request.allowed_backends
        known = {build.backend.tag: None for build in builds}
        tags = [tag for tag in known if tag not in excluded]
        if allowed is None or not known.keys() >= set(allowed):
            tags += _find_new_tags(index, client, catalog, builds)
        if allowed is not None:
            tags = [tag for tag in tags if tag in allowed]
    companions = COMPANIONS & requirement_names(request.requirements)
    listing = read_listing(sources, client, tags, ("torch", *sorted(companions)))
    _report_listing(listing, reporter)
    # A folder may supplement a requested index, but the default index may not.
    is_listed = any(wheel.source != DEFAULT_INDEX for wheel in listing.wheels)
    if addresses.unused_indexes and not is_listed:
        raise UsageError(
            "torch-index-empty",
            "no-index excludes every index, and find-links list no torch for this machine",
            hint=f"Remove {sources.uv.name_setting('no-index')}, or add torch to a find-links folder",
        )
    is_empty = listing.index_answers and not (is_listed or listing.is_dated)
    if addresses.is_torch_index_requested and is_empty:
        tag = request.backend
        if tag:  # the plan reports an unknown backend
            below = f"it must contain {tag}/torch/ or files in {tag}/"
            reporter.warn(f"{index} lists no torch for {tag}; {below}")
        else:
            raise UsageError(
                "torch-index-empty",
                f"{index} lists no torch for this machine",
                hint="Set --torch-index to the base URL of an index with <backend>/torch/, or with files in <backend>/",
            )
    return update_catalog(replace(catalog, torch_index=index), listing, machine)


def update_catalog(catalog: Catalog, listing: Listing, machine: Machine) -> Catalog:
    """Return a catalog with the builds and companions of a listing."""
    platform = platform_name(machine.os, machine.arch)
    return replace(
        catalog,
        builds=update_builds(catalog.builds, listing, platform),
        offered=listed_companions(listing, platform),
    )


def _report_listing(listing: Listing, reporter: Reporter) -> None:
    """Report unreachable sources and files without an upload date."""
    for silent in listing.silent:
        from gpuinstall.sources.web import OFFLINE

        # In an offline run, unreachable sources are expected.
        if silent.why != OFFLINE:
            reporter.warn(f"{silent.sentence}; using the other sources")
    if listing.is_dated and not all(wheel.uploaded for wheel in listing.wheels):
        text = "it does not exclude files of PyTorch packages without an upload date"
        reporter.step("Ignored", f"exclude-newer: {text}")


def _find_new_tags(
    index: str,
    client: Client,
    catalog: Catalog,
    builds: Iterable[Build],
) -> list[str]:
    """Return backends that the torch index added since the catalog.

    Args:
        index: The torch index.
        client: The HTTP client.
        catalog: The catalog, with the known backends.
        builds: The builds of the platform.
    """
    page = None
    with suppress(InstallationError):
        page = client.page(f"{index}/torch/")
    if page is None:
        return []
    backends = {build.backend for build in catalog.builds}
    kinds = {backend.kind for backend in backends}
    versions = [build.torch for build in builds]
    newest = max(versions, default=Version("0"))
    tags = set()
    # The + of a label may be escaped.
    name = r"torch-([0-9][0-9.]*)(?:\+|%2B|&#43;)([a-z]+[0-9.]*)-"
    for torch, tag in re.findall(name, page.text):
        backend = known_backend(tag)
        if backend is None or backend in backends or backend.kind not in kinds:
            continue
        if Version(torch) >= newest:
            tags.add(tag)
    return sorted(tags)
