"""The catalogue with what earlier runs learned; quick, for those who ask nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.catalog import load_catalog

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.learned.store import LearnedStore


def known_catalog(torch_index: str | None = None, store: LearnedStore | None = None) -> Catalog:
    """Load the catalogue as shipped, with what earlier runs learned: from ``torch_index``, or from anywhere."""
    from gpuinstall.learned.store import learned_store

    catalog = load_catalog()
    told = {(build.torch, build.backend, build.os, build.arch) for build in catalog.builds}
    rows = sorted((store or learned_store()).builds(), key=lambda row: row.learned, reverse=True)
    new: dict[object, Build] = {}
    for row in rows:
        build = row.build()
        key = build.torch, build.backend, build.os, build.arch
        if key not in told and torch_index in {None, row.base or torch_index}:
            new.setdefault(key, build)
    return replace(catalog, builds=(*catalog.builds, *new.values())) if new else catalog
