"""The catalogue as the sources have it today: what they list of the builds for a machine."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import Version

from gpuinstall.backend import known_backend
from gpuinstall.catalog.listing import COMPANIONS, read_listing
from gpuinstall.catalog.narrowing import narrow
from gpuinstall.errors import InstallationError
from gpuinstall.web.answers import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.catalog.catalog import Catalog
    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.request import Request
    from gpuinstall.sources import Sources
    from gpuinstall.web import Client


def live_catalog(
    catalog: Catalog, machine: Machine, request: Request, reporter: Reporter, *, sources: Sources, client: Client
) -> Catalog:
    """Narrow the catalogue to what the sources list today, and say once which of them are silent or ignored.

    Raise InstallationError where a source refuses us or talks nonsense.
    """
    for url in sources.extra_indexes:
        reporter.warn(f"the extra index {url} is not used for PyTorch packages")
    tags, packages = _backends(catalog, machine, request), ("torch", *companions_asked(request))
    with ThreadPoolExecutor(1) as pool:
        listed_tags = pool.submit(_listed_tags, sources.torch_index, client) if not request.backend else None
        listing = read_listing(sources, client, tags, packages)
    if listed_tags and (new := _new_backends(listed_tags.result(), catalog, machine, request)):
        listing = read_listing(sources, client, (*tags, *new), packages)
    for silent in (silent for silent in listing.silent if silent.why != OFFLINE.why):
        reporter.warn(f"{silent.host} cannot be reached, {silent.why}; the other sources are used")
    from_index = any(wheel.source.startswith(sources.torch_index) for wheel in listing.wheels)
    if sources.named and listing.index_answers and not from_index:
        wanted, tag = (f" for {request.backend}", request.backend) if request.backend else ("", "<backend>")
        below = f"It must contain {tag}/torch/ or files in {tag}/"
        reporter.warn(f"{sources.torch_index} lists no torch{wanted}: {below}")
    return narrow(replace(catalog, torch_index=sources.torch_index), listing, machine.os, machine.arch)


def companions_asked(request: Request) -> list[str]:
    """Name the companions that a request asks for."""
    names = (re.match(r"[\w.-]*", text.strip()) for text in request.requirements)
    packages = {canonicalize_name(name[0]) for name in names if name}
    return sorted(packages & COMPANIONS)


def _listed_tags(index: str, client: Client) -> set[tuple[str, str]]:
    """Read every version of torch and its tag on the page that an index has for all tags, where it has one."""
    with suppress(InstallationError):
        page = client.page(f"{index}/torch/")
        return set(re.findall(r"torch-([0-9][0-9.]*)(?:\+|%2B|&#43;)([a-z]+[0-9.]*)-", page.text)) if page else set()
    return set()


def _new_backends(
    listed: Iterable[tuple[str, str]], catalog: Catalog, machine: Machine, request: Request
) -> tuple[str, ...]:
    """The tags that the catalogue has never heard of, and that have a torch as new as its newest."""
    backends = {build.backend for build in catalog.builds}
    kinds = {backend.kind for backend in backends}
    newest = max((build.torch for build in catalog.builds_for(machine.os, machine.arch)), default=Version("0"))
    recent = {tag: backend for torch, tag in listed if (backend := known_backend(tag)) and Version(torch) >= newest}
    new = sorted(tag for tag, backend in recent.items() if backend not in backends and backend.kind in kinds)
    return tuple(tag for tag in new if request.allowed_backends is None or tag in request.allowed_backends)


def _backends(catalog: Catalog, machine: Machine, request: Request) -> tuple[str, ...]:
    if request.backend:
        return (request.backend,)
    tags = dict.fromkeys(build.backend.tag for build in catalog.builds_for(machine.os, machine.arch))
    return tuple(tag for tag in tags if request.allowed_backends is None or tag in request.allowed_backends)
