"""The catalogue as the sources have it today: what they list of the builds for a machine."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.backend import known_backend
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import requirement_names
from gpuinstall.catalog.listing import COMPANIONS, Listing, read_listing
from gpuinstall.catalog.narrowing import narrow
from gpuinstall.sources.web.client import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.base.request import Request
    from gpuinstall.catalog.catalog import Catalog
    from gpuinstall.sources import Sources
    from gpuinstall.sources.web import Client

    _TorchAndTag = tuple[str, str]


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

    Raises:
        InstallationError: if a source refuses us or sends what is no page.
    """
    for url in sources.extra_indexes:
        reporter.warn(f"the extra index {url} is not used for PyTorch packages")
    listing = _read_sources(
        catalog,
        machine,
        request,
        sources=sources,
        client=client,
    )
    for silent in listing.silent:
        if silent.why != OFFLINE.why:
            unused = f"{silent.host} cannot be reached, {silent.why}"
            reporter.warn(f"{unused}; the other sources are used")
    if (
        sources.is_torch_index_requested
        and listing.index_answers
        and not _is_in_index(listing, sources)
    ):
        reporter.warn(_nothing_in_index(sources.torch_index, request.backend))
    catalog = replace(catalog, torch_index=sources.torch_index)
    return narrow(catalog, listing, machine.os, machine.arch)


def companions_asked(request: Request) -> list[str]:
    """Return the companions that a request names."""
    return sorted(COMPANIONS & requirement_names(request.requirements))


def _read_sources(
    catalog: Catalog,
    machine: Machine,
    request: Request,
    *,
    sources: Sources,
    client: Client,
) -> Listing:
    """Read the backends that were requested, else the catalogue's and those newer than it."""
    packages = ("torch", *companions_asked(request))
    if request.backend:
        return read_listing(sources, client, (request.backend,), packages)
    builds = catalog.builds_for(machine.os, machine.arch)
    tags = [build.backend.tag for build in builds]
    tags += _new_tags(_listed_tags(sources.torch_index, client), catalog, machine)
    if request.allowed_backends is not None:
        tags = [tag for tag in tags if tag in request.allowed_backends]
    return read_listing(sources, client, tags, packages)


def _listed_tags(
    index: str,
    client: Client,
) -> set[_TorchAndTag]:
    """Return every torch on the page that an index may have for all tags."""
    with suppress(InstallationError):
        page = client.page(f"{index}/torch/")
        if page:
            name = r"torch-([0-9][0-9.]*)(?:\+|%2B|&#43;)([a-z]+[0-9.]*)-"
            return set(re.findall(name, page.text))
    return set()


def _new_tags(
    listed: Iterable[_TorchAndTag],
    catalog: Catalog,
    machine: Machine,
) -> list[str]:
    """Return the tags unknown to the catalogue that have a torch as new as its newest."""
    backends = {build.backend for build in catalog.builds}
    kinds = {backend.kind for backend in backends}
    builds = catalog.builds_for(machine.os, machine.arch)
    versions = [build.torch for build in builds]
    newest = max(versions, default=Version("0"))
    tags = set()
    for torch, tag in listed:
        backend = known_backend(tag)
        if backend is None or backend in backends or backend.kind not in kinds:
            continue
        if Version(torch) >= newest:
            tags.add(tag)
    return sorted(tags)


def _is_in_index(
    listing: Listing,
    sources: Sources,
) -> bool:
    places = {wheel.source for wheel in listing.wheels}
    addresses = [place for place in places if isinstance(place, str)]
    return any(address.startswith(sources.torch_index) for address in addresses)


def _nothing_in_index(
    index: str,
    backend: str | None,
) -> str:
    requested = f" for {backend}" if backend else ""
    tag = backend or "<backend>"
    below = f"It must contain {tag}/torch/ or files in {tag}/"
    return f"{index} lists no torch{requested}: {below}"
