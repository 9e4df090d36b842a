"""What a lock brings that is not known here: hosts that are none of the sources, builds that the catalogue lacks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from gpuinstall.backend import CPU, known_backend
from gpuinstall.catalog import DEFAULT_INDEX, Build, Catalog, Wheel
from gpuinstall.catalog.listing import default_wheels, family_wheels
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.catalog.narrowing import glibc_floor, platforms, python
from gpuinstall.errors import InstallationError, LockError
from gpuinstall.extensions.rows import list_files, load_extensions
from gpuinstall.location import Location
from gpuinstall.lock.fit import read_locks
from gpuinstall.lock.lock import Lock, LockedFile
from gpuinstall.lock.prebuilt import extension_row
from gpuinstall.provenance import is_of_pytorch
from gpuinstall.shell import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gpuinstall.session import Session


def check_hosts(lock: Lock, files: Iterable[LockedFile], backend: str, session: Session) -> None:
    """Raise LockError where ``files`` of a lock come from a host that is none of the sources here, cached or not.

    Where a source does not answer, nobody knows what its hosts are; then each host is named.
    """
    strange = _strange_hosts(files, backend, session, lock.versions.get("torch", ""))
    for host, names in strange.items():
        if refused := [
            name
            for name in names
            if not (session.sources.trust_folder and _is_silent(name, session))
        ]:
            message = f"{lock.name} takes {', '.join(refused)} from {host}, which is not one of the configured sources"
            hosts = "GPUINSTALL_TORCH_INDEX, UV_DEFAULT_INDEX, UV_INDEX"
            hint = f"gpuinstall lock   # makes it again; or set the host: {hosts}"
            if own := " ".join(
                dict.fromkeys(lock.indexes[name] for name in refused if name in lock.indexes)
            ):
                hint = f"export UV_INDEX={quoted(own)}   # if you trust this index: it was locked from there"
            raise LockError("lock-source", message, hint=hint)
        session.reporter.notice(
            "Index", f"{host}, as {lock.name} says{': the source of torch' * ('torch' in names)}"
        )


def name_torch_source(files: Iterable[LockedFile], source: str, session: Session) -> None:
    """Say it where torch comes from a source that a file of the folder chose; ``source`` is that of its build."""
    for torch in (file for file in files if file.package == "torch"):
        if setting := session.sources.chooser_of(source) or session.sources.chooser_of(torch.url):
            session.reporter.notice(
                "Torch", f"it comes from {torch.url}, as {setting.key} in {setting.file} says"
            )


def with_locked_builds(catalog: Catalog, folder: Path, session: Session) -> Catalog:
    """Add the builds that the locks in a folder hold and the catalogue does not know, as far as they can be read."""
    try:
        locks = read_locks(folder)
    except LockError:  # it is said when the lock is needed
        return catalog
    if not locks:
        return catalog
    from gpuinstall.learned.reader import Reader
    from gpuinstall.learned.store import learned_store

    reader = Reader(session.sources, session.client, learned_store(), session.reporter)
    new = []
    for build in (build for lock in locks for build in _held(lock, catalog.torch_index)):
        catalog = catalog.serving(build.backend.kind)
        alike = (
            known
            for known in catalog.builds_for(build.os, build.arch)
            if known.torch == build.torch
        )
        if not any(known.backend == build.backend or not build.labelled for known in alike):
            if _strange_hosts(
                [LockedFile("torch", wheel.url) for wheel in build.unread],
                str(build.backend),
                session,
            ):
                continue  # nobody but the sources is asked
            with suppress(InstallationError):
                new.append(reader.torch(build).build())
    return replace(catalog, builds=(*catalog.builds, *new)) if new else catalog


def _strange_hosts(
    files: Iterable[LockedFile], backend: str, session: Session, torch: str = ""
) -> dict[str, list[str]]:
    """The packages by host, with its scheme, where it is none that the sources name nor their pages lead to."""
    places = *session.sources.places, session.default_index
    ours = {Location.parse(place).server for place in places if place}
    strange: dict[str, list[str]] = {}
    for file in files:
        server = Location.parse(file.url).server
        is_official = (
            server.startswith("https://") and server.endswith(":443") and is_of_pytorch(server)
        )
        if server in ours or server == "file://" or is_official:
            continue
        for listed in _listed_hosts(file.package, backend, session, torch):
            ours |= listed
            if server in ours:
                break
        else:
            strange.setdefault(server, []).append(file.package)
    return strange


def _is_silent(package: str, session: Session) -> bool:
    """Say whether a source did not answer that a package may come from."""
    own = (session.sources.torch_index,) if package in load_catalog().family else ()
    return any(session.client.unreachable(source) for source in (*own, session.default_index or ""))


def _listed_hosts(package: str, backend: str, session: Session, torch: str) -> Iterator[set[str]]:
    """The hosts that the pages of a package lead to, source by source; one that does not answer leads nowhere."""
    sources = replace(session.sources, default_index=session.default_index)
    if package in load_extensions().rows:
        extension = extension_row(package, session)
        yield {Location.parse(source.url).server for source in extension.sources if source.url}
        with suppress(InstallationError):
            beside = (".".join(torch.split(".")[:2]), backend)
            files = list_files(extension, [beside], sources, session.client).files
            yield {Location.parse(file.wheel.url).server for file in files}
    yield {
        Location.parse(wheel.url).server
        for wheel in family_wheels(sources, session.client, backend, package)
    }
    for index in sources.indexes_for(package, session.default_index):
        with suppress(InstallationError):
            listed = default_wheels(replace(sources, default_index=index), session.client, package)
            yield {Location.parse(wheel.url).server for wheel in listed}


def _held(lock: Lock, torch_index: str) -> Iterator[Build]:
    for file in lock.files:
        if file.package != "torch":
            continue
        with suppress(ValueError):
            _, version, _, tags = parse_wheel_filename(file.name)
            backend = known_backend(version.local)
            source = f"{torch_index}/{backend}" if backend else DEFAULT_INDEX
            wheel = Wheel("torch", version, file.name, file.url, tags, file.sha256)
            wheel = replace(wheel, backend=version.local, source=source)
            for os, arch in platforms(tags):
                yield Build(
                    torch=Version(version.public),
                    backend=backend or CPU,
                    os=os,
                    arch=arch,
                    pythons=tuple(filter(None, (python(tags),))),
                    glibc=glibc_floor(tags),
                    labelled=backend is not None,
                    source=source,
                    unread=(wheel,),
                )
