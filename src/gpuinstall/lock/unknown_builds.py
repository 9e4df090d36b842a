"""The torch of a lock that the catalogue does not know, read from the very file that the lock names."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from gpuinstall.backend import CPU, known_backend
from gpuinstall.catalog.build import DEFAULT_INDEX, Build
from gpuinstall.catalog.narrowing import glibc_floor, platforms, python
from gpuinstall.catalog.pages import Wheel
from gpuinstall.errors import InstallationError, LockError
from gpuinstall.lock.fit import read_locks
from gpuinstall.lock.hosts import strange_hosts
from gpuinstall.lock.lock import LockedFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.lock import Lock
    from gpuinstall.session import Session


def with_locked_builds(catalog: Catalog, folder: Path, session: Session) -> Catalog:
    """Add the builds that the locks in a folder hold and the catalogue does not know, as far as they can be read."""
    locks: list[Lock] = []
    with suppress(LockError):  # it is said when the lock is needed
        locks = read_locks(folder)
    if not locks:
        return catalog
    from gpuinstall.learned.reader import Reader
    from gpuinstall.learned.store import learned_store

    reader = Reader(session.sources, session.client, learned_store(), session.reporter)
    new = []
    for build in (build for lock in locks for build in _held(lock, catalog.torch_index)):
        catalog = catalog.serving(build.backend.kind)
        if not any(_same(build, known) for known in catalog.builds_for(build.os, build.arch)):
            if strange_hosts([LockedFile("torch", wheel.url) for wheel in build.unread], str(build.backend), session):
                continue  # nobody but the sources is asked
            with suppress(InstallationError):
                new.append(reader.torch(build).build())
    return replace(catalog, builds=(*catalog.builds, *new)) if new else catalog


def _same(held: Build, known: Build) -> bool:
    return held.torch == known.torch and (held.backend == known.backend or not held.labelled)


def _held(lock: Lock, torch_index: str) -> Iterator[Build]:
    """The builds whose wheels a lock names."""
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
