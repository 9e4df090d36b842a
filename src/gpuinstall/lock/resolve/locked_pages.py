"""Index pages of the torch family that list only the files of lock files.

If they suffice for a resolution, torch is unchanged, and PyTorch's index is not needed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Any

from gpuinstall.base.location import Location
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import Catalog
from gpuinstall.lock.file.lock import Lock, LockedFile
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.resolver_input import Requests
from gpuinstall.plan import Plan
from gpuinstall.plan.alternatives import runs_on_same_gpus
from gpuinstall.sources.session import Session
from gpuinstall.sources.web import Page

LockedPages = dict[str, Page | None]
"""Pages by URL. None: the page is requested if its host is reachable."""


def limit_to_locked_torch(
    requests: Requests, locks: Sequence[Lock]
) -> list[LockRequest] | None:
    """Return the requests for the torch builds of their lock files.

    The result is None if a request neither extends nor reduces the request of its lock
    file, requests another package of the torch family, or has a build for more GPUs. It
    is also None if the locked torch is on no server.
    """
    limited = []
    for request in requests:
        own = [one for one in locks if len(locks) == 1 or one.target == request.label]
        if len(own) != 1 or own[0].find_unhashed_packages:
            return None
        lock = own[0]
        if "torch" in lock.packages_without_url:
            return None
        torch = lock.versions.get("torch")
        names = requirement_names(request.request.requirements)
        is_similar = names <= lock.requested or names >= lock.requested
        has_family = request.catalog.family & names <= lock.names
        if torch is None or not is_similar or not has_family:
            return None
        narrowed = request.limit_to_locked_backends(own)
        plan = narrowed.choose_build(torch=parse_public_version(torch))
        is_same = isinstance(plan, Plan) and plan.choice.build.backend.tag == (
            lock.record.backend
        )
        if not is_same or not runs_on_same_gpus(plan, request.outcome):
            return None
        limited.append(narrowed)
    return limited


def create_locked_pages(
    requests: Requests, locks: Sequence[Lock], session: Session
) -> LockedPages:
    """Return pages of torch's packages with only the files of lock files.

    The names on PyTorch's index are read if a requested package is in no lock file.
    """
    index = session.sources.torch_index
    default = session.find_default_index()
    names = requirement_names(chain.from_iterable(_list_requirements(requests)))
    is_new = not names <= frozenset[str]().union(*(lock.names for lock in locks))
    pages: LockedPages = {}
    for lock in locks:
        place = f"{index}/{lock.record.backend}"
        own = _find_own_files(lock, requests[0].catalog, index)
        projects = [{"name": name} for name in (*requests[0].catalog.family, *own)]
        pages[f"{place}/"] = None if is_new else _create_page("projects", projects)
        # No CPU build requires Triton.
        for url in (f"{place}/torch/", f"{place}/triton/", f"{default}/torch/"):
            pages[url] = _create_page("files", [])
        if "torch" not in own:
            # Without PyTorch's index, torch is from the default index.
            pages[f"{place}/"] = _create_page("projects", [])
            own = {"torch": [one for one in lock.files if one.package == "torch"]}
            place = default or ""
        for name, files in own.items():
            rows = [
                {
                    "url": file.url,
                    "filename": file.name,
                    "hashes": {"sha256": file.sha256},
                    "core-metadata": True,
                }
                for file in files
            ]
            pages[f"{place}/{name}/"] = _create_page("files", rows)
    return pages


def _list_requirements(requests: Requests) -> list[Any]:
    return [one.request.requirements for one in requests]


def _find_own_files(
    lock: Lock, catalog: Catalog, index: str
) -> dict[str, list[LockedFile]]:
    """Return the files of a lock that are on PyTorch's index, by package."""
    servers = {Location.parse(index).server}
    for file in lock.files:
        # The default index has no labels.
        if file.package in catalog.family and "+" in lock.versions[file.package]:
            servers.add(Location.parse(file.url).server)
    own = defaultdict[str, list[LockedFile]](list)
    for file in lock.files:
        if Location.parse(file.url).server in servers:
            own[file.package].append(file)
    return own


def _create_page(key: str, rows: list[dict[str, Any]]) -> Page:
    kind = "application/vnd.pypi.simple.v1+json"
    text = json.dumps({"projects": [], "files": [], key: rows})
    return Page(text, kind, "", exists=bool(rows))
