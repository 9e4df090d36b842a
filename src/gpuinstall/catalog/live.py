"""The catalogue as the sources have it today, for one machine and request."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.catalog.listing import read_listing

if TYPE_CHECKING:
    from gpuinstall.catalog.catalog import Catalog
    from gpuinstall.catalog.listing import Listing
    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.request import Request
    from gpuinstall.sources import Sources
    from gpuinstall.web import Client

COMPANIONS = frozenset({"torchaudio", "torchvision"})
"""The packages whose versions the catalogue pairs with torch's."""


def live_catalog(
    catalog: Catalog, machine: Machine, request: Request, reporter: Reporter, *, sources: Sources, client: Client
) -> Catalog:
    """Narrow the catalogue to what the sources list today, and say once which of them are silent or ignored.

    Raise InstallationError where a source refuses us or talks nonsense.
    """
    for url in sources.ignored_extra:
        reporter.warn(f"the extra index {url} is not asked for torch and its family")
    listing = read_listing(sources, client, _backends(catalog, machine, request), ("torch", *_companions(request)))
    for silent in listing.silent:
        reporter.warn(f"{silent.host} cannot be reached, {silent.why}; the other sources serve instead")
    if sources.named and listing.index_answers and not _lists_any(listing, sources.torch_index):
        reporter.warn(
            f"{sources.torch_index} lists no torch: below it, <backend>/torch/ or files in <backend>/ must lie"
        )
    here = replace(catalog, torch_index=sources.torch_index)
    return here.narrowed(listing, machine.os, machine.arch)


def _lists_any(listing: Listing, index: str) -> bool:
    return any(wheel.source.startswith(index) for wheel in listing.wheels)


def _companions(request: Request) -> list[str]:
    names = (re.match(r"[\w.-]*", text.strip()) for text in request.requirements)
    asked = {canonicalize_name(name[0]) for name in names if name}
    return sorted(asked & COMPANIONS)


def _backends(catalog: Catalog, machine: Machine, request: Request) -> tuple[str, ...]:
    if request.backend:
        return (request.backend,)
    tags = dict.fromkeys(build.backend.tag for build in catalog.builds_for(machine.os, machine.arch))
    return tuple(tag for tag in tags if request.allowed_backends is None or tag in request.allowed_backends)
