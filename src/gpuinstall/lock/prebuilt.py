"""Extensions that were named: one prebuilt file of each and the torch that it loads beside, chosen together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.errors import NoBuildError
from gpuinstall.extensions.choice import Surroundings, choose_extension
from gpuinstall.extensions.listing import list_files
from gpuinstall.extensions.rows import Extension, ExtensionFile, ExtensionSource, load_extensions
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.store import learned_store
from gpuinstall.lock.code_check import served_gpus
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.values import Reason, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from packaging.version import Version

    from gpuinstall.catalog.build import Build
    from gpuinstall.extensions.choice import ExtensionChoice, ExtensionFit
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.plan.requirement import Asked
    from gpuinstall.session import Session

MIRROR = "GPUINSTALL_EXTENSION_INDEX"
"""The variable that names a mirror of Astral's index."""


class Prebuilt(NamedTuple):
    """Requests within the torch and the files of their extensions, that torch, and what is to be said of it."""

    requests: list[LockRequest]
    torch: Version | None = None
    remarks: tuple[Reason, ...] = ()


def extension_row(name: str, index: str | None, named: Iterable[str] = ()) -> Extension:
    """The row of a name; one that has none comes from the default index alone, as every package does."""
    table = load_extensions()
    row = table.rows.get(name, Extension(name, (table.sources["default"],)))
    sources = [
        source._replace(url=f"{index.rstrip('/')}/{{backend}}/{{name}}/") if index and source.id == "astral" else source
        for source in row.sources
    ]
    return row._replace(sources=(*sources, *(ExtensionSource("named", 4, False, url) for url in named)))


def choose_prebuilt(
    extension: Extension, request: LockRequest, session: Session, asked: Asked | None = None
) -> ExtensionChoice:
    """Ask the sources of an extension, and read what their names speak for."""
    plan, machine = request.plan, request.machine
    tags = request.target.up_to(machine.glibc).tags(plan.choice.python)
    builds = plan.runnable or (plan.choice.build,)
    here = Surroundings(builds, tuple(served_gpus(request, plan)), frozenset(tags), machine.glibc)
    sources = replace(session.sources, default_index=session.default_index)
    reader = Reader(sources, session.client, learned_store(), session.reporter)

    def listed() -> Iterator[ExtensionFile]:
        listing = list_files(extension, here.builds, sources, session.client)
        for host in listing.silent:
            session.reporter.warn(f"{host} cannot be reached: what it has of {extension.name} is not known")
        yield from (file for file in listing.files if asked is None or asked.allows(file.wheel.version))

    def read(file: ExtensionFile, build: Build) -> LearnedRow:
        return reader.companion(file.wheel, build.backend, f"{build.os}-{build.arch}")

    return choose_extension(extension, listed(), here, read)


def with_prebuilt(requests: Sequence[LockRequest], session: Session) -> Prebuilt:
    """Narrow requests that name extensions to a torch with a file of each; raise NoBuildError where no GPU runs one.

    An extension without a file that fits is left to be built from source.
    """
    named = [asked for asked in map(parse_requirement, requests[0].request.requirements) if not asked.url]
    rows = [(asked, extension_row(asked.name, session.environment.get(MIRROR))) for asked in named]
    remarks, torch, narrowed = dict[Reason, None](), None, list(requests)
    for asked, row in rows:
        for at, request in enumerate(narrowed if any(source.url for source in row.sources) else ()):
            fit = _fit(row, request, session, asked)
            if fit is None:
                continue
            best, torch = request.choice.build, fit.build.torch
            message = f"{row.name} {fit.file.wheel.version.public} has prebuilt files up to torch {torch}"
            remark = Reason("extension-wants-torch", f"{message}; without it torch {best.name} would run here")
            remarks |= {remark: None} if torch < best.torch else {}
            names = {build.name for build in request.builds if build.torch == torch}
            narrowed = [_only(other, names) for other in narrowed]
            files = {**request.files, row.name: (fit.file.wheel,)}
            narrowed[at] = replace(_only(request, {fit.build.name}), files=files, python=request.choice.python)
    return Prebuilt(narrowed, torch, tuple(remarks))


def without_torch(request: LockRequest, torch: Version) -> LockRequest:
    """The same without a release of torch."""
    return _only(request, {build.name for build in request.builds if build.torch != torch})


def _only(request: LockRequest, names: Collection[str]) -> LockRequest:
    catalog = request.catalog.without(lambda build: not (build.absent or build.name in names), "without-extension")
    return replace(request, catalog=catalog)


def _fit(extension: Extension, request: LockRequest, session: Session, asked: Asked) -> ExtensionFit | None:
    if isinstance(request.outcome, Refusal):
        return None
    choice = choose_prebuilt(extension, request, session, asked)
    if choice.refusal:
        raise NoBuildError(choice.refusal.code, choice.refusal.message, hint=f"leave {extension.name} out")
    if choice.fit is None:
        session.reporter.warn(f"no prebuilt file of {extension.name} runs here: gpuinstall extensions {extension.name}")
    return choice.fit
