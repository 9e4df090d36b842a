"""The hosts that a lock takes its files from, and which of them are none of the sources here."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpuinstall.catalog.listing import default_wheels, family_wheels
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.errors import InstallationError, LockError
from gpuinstall.lock.fetch import OFFICIAL_HOSTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.lock.lock import Lock, LockedFile
    from gpuinstall.session import Session


def check_hosts(lock: Lock, files: Iterable[LockedFile], backend: str, session: Session) -> None:
    """Raise LockError where ``files`` of a lock come from a host that is none of the sources here, cached or not.

    Where a source does not answer, nobody knows what its hosts are; then each host is named.
    """
    strange = strange_hosts(files, backend, session)
    for host, names in strange.items():
        if refused := [name for name in names if not _is_silent(name, session)]:
            raise LockError(
                "lock-source",
                f"{lock.name} takes {', '.join(refused)} from {host}, which is none of the sources here",
                hint="gpuinstall lock makes it anew; where the host is meant, name it: "
                "GPUINSTALL_TORCH_INDEX, UV_DEFAULT_INDEX",
            )
        session.reporter.step("Index", f"{host}, as {lock.name} says")


def strange_hosts(files: Iterable[LockedFile], backend: str, session: Session) -> dict[str, list[str]]:
    """The packages by host, where the host is none that the sources name, nor one that their pages lead to.

    A host is written with its scheme: what a source has by https does not come from it by http.
    """
    places = session.sources.torch_index, session.default_index or "", *session.sources.find_links
    known = set(map(_host, places))
    strange: dict[str, list[str]] = {}
    for file in files:
        host = _host(file.url)
        if urlsplit(file.url).scheme == "file" or host in known or _is_official(host):
            continue
        for listed in _listed_hosts(file.package, backend, session):
            known |= listed
            if host in known:
                break
        else:
            strange.setdefault(host, []).append(file.package)
    return strange


def _host(address: str) -> str:
    scheme, place, *_ = urlsplit(address)
    return f"{scheme}://{place}"


def _is_official(host: str) -> bool:
    scheme, _, place = host.partition("://")
    return scheme == "https" and f".{place}".endswith(OFFICIAL_HOSTS)


def _is_silent(package: str, session: Session) -> bool:
    """Say whether a source did not answer that a package may come from."""
    own = (session.sources.torch_index,) if package in load_catalog().family else ()
    return any(session.client.unreachable(source) for source in (*own, session.default_index or ""))


def _listed_hosts(package: str, backend: str, session: Session) -> Iterator[set[str]]:
    """The hosts that the pages of a package lead to, source by source; one that does not answer leads nowhere."""
    sources = replace(session.sources, default_index=session.default_index)
    yield {_host(wheel.url) for wheel in family_wheels(sources, session.client, backend, package)}
    with suppress(InstallationError):
        yield {_host(wheel.url) for wheel in default_wheels(sources, session.client, package)}
