"""Extensions that were named: one prebuilt file of each and the torch that it loads beside, chosen together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.errors import NoBuildError
from gpuinstall.extensions.choice import ExtensionChoice, Surroundings, choose_extension, minor_of
from gpuinstall.extensions.rows import NAMED, Extension, ExtensionFile, ExtensionSource, list_files, load_extensions
from gpuinstall.finding import Reason
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.store import learned_store
from gpuinstall.lock.code_check import served_gpus
from gpuinstall.lock.source_builds import SDIST, build_needs, known_builds, source_builds, this_site
from gpuinstall.plan import Rejected
from gpuinstall.plan.requirement import Asked, marker_holds, parse_requirement, requirement_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from packaging.version import Version

    from gpuinstall.catalog import Build
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.session import Session

MIRROR = "GPUINSTALL_EXTENSION_INDEX"
"""The variable that names a mirror of Astral's index."""
REASONS = 3
"""How many files that were passed over a refusal names."""


class Prebuilt(NamedTuple):
    """Requests within the torch and the files of their extensions, that torch, and what is to be said of it."""

    requests: list[LockRequest]
    torch: Version | None = None
    remarks: tuple[Reason, ...] = ()


def extension_row(name: str, session: Session) -> Extension:
    """The row of a name, with the sources that the user names; one that has none comes from the default index alone."""
    table, index = load_extensions(), session.environment.get(MIRROR)
    if name not in table.rows:
        return Extension(name, (table.sources["default"],))
    row = table.rows[name]
    sources = [
        source._replace(url=f"{index.rstrip('/')}/{{backend}}/{{name}}/") if index and source.id == "astral" else source
        for source in row.sources
    ]
    named = (ExtensionSource(NAMED, 4, False, url) for url in session.sources.extension_sources)
    return row._replace(sources=(*sources, *named))


def choose_prebuilt(
    extension: Extension, request: LockRequest, session: Session, asked: Asked | None = None
) -> ExtensionChoice:
    """Ask the sources of an extension, and read what their names speak for; a version that is to stay comes first."""
    plan, machine = request.plan, request.machine
    tags = request.target.up_to(machine.glibc).tags(plan.choice.python)
    builds = plan.runnable or (plan.choice.build,)
    here = Surroundings(builds, tuple(served_gpus(request, plan)), frozenset(tags), machine.glibc, request.locked)
    sources = replace(session.sources, default_index=session.default_index)
    reader = Reader(sources, session.client, learned_store(), session.reporter)
    held = request.pins.preferred.get(extension.name, "").partition("+")[0]

    def listed() -> Iterator[ExtensionFile]:
        places = ((minor_of(build), build.backend.tag) for build in here.builds)
        listing = list_files(extension, places, sources, session.client)
        for host in listing.silent:
            session.reporter.warn(f"{host} is unreachable: its files of {extension.name} are not known")
        final = [file for file in listing.files if not file.wheel.version.is_prerelease]
        early = asked and asked.specifier and asked.specifier.prereleases
        for file in listing.files if early else final or listing.files:
            if asked is None or asked.allows(file.wheel.version):
                sha256 = file.wheel.sha256 or here.locked.get(file.wheel.filename)
                yield file._replace(wheel=replace(file.wheel, sha256=sha256))

    def read(file: ExtensionFile, build: Build) -> LearnedRow:
        return reader.companion(file.wheel, build.backend, f"{build.os}-{build.arch}")

    kept = (file for file in (listed() if held else ()) if file.wheel.version.public == held)
    choice = choose_extension(extension, kept, here, read)
    return choice if choice.fit or choice.refusal else choose_extension(extension, listed(), here, read)


def with_prebuilt(requests: Sequence[LockRequest], session: Session) -> Prebuilt:
    """Narrow requests that name extensions to a torch with a file of each.

    Raise NoBuildError where there is none, unless extensions may be compiled: then it is left to be built from source.
    """
    named = [asked for asked in map(parse_requirement, requests[0].request.requirements) if not asked.url]
    remarks, torch, narrowed = dict[Reason, None](), None, list(requests)
    for asked, row in ((asked, extension_row(asked.name, session)) for asked in named):
        for at, request in enumerate(narrowed if any(source.url for source in row.sources) else ()):
            if isinstance(request.outcome, Rejected):
                continue
            if asked.marker and not marker_holds(asked.marker, request.machine, request.choice.python):
                continue
            choice = choose_prebuilt(row, request, session, asked)
            if choice.fit is None:
                check_compiling(row, choice, request, session)
                continue
            fit, best = choice.fit, request.choice.build
            torch = fit.build.torch
            message = f"{row.name} {fit.file.wheel.version.public} has prebuilt files only up to torch {torch}"
            remark = Reason("extension-wants-torch", f"{message}; without it torch {best.name} would run here")
            remarks |= {remark: None} if torch < best.torch else {}
            names = {build.name for build in request.builds if build.torch == torch}
            narrowed = [_only(other, names) for other in narrowed]
            files = {**request.files, row.name: (fit.file.wheel,)}
            narrowed[at] = replace(_only(request, {fit.build.name}), files=files, python=request.choice.python)
    return Prebuilt(narrowed, torch, tuple(remarks))


def with_brought(
    requests: Sequence[LockRequest], answer: Sequence[Resolution], session: Session
) -> list[LockRequest] | None:
    """Take the extensions that came with something, and would be built, from their sources where these have a file.

    It has to load beside the torch that was chosen, which it never moves. None where there is no such file.
    """
    brought = list(requests)
    for at, resolution in enumerate(answer):
        beside = _only(resolution.request, {resolution.choice.build.name})
        for build in source_builds(resolution.document):
            known = build.package in load_extensions().rows and build.origin == SDIST
            if known and (fit := choose_prebuilt(extension_row(build.package, session), beside, session).fit):
                brought[at] = replace(brought[at], files={**brought[at].files, build.package: (fit.file.wheel,)})
    return brought if brought != list(requests) else None


def optional_extensions(resolution: Resolution) -> str | None:
    """What the programs that were named do without and can use, in one line; None where it is nothing."""
    names = requirement_names(resolution.request.request.requirements)
    users = {row.name: row.optional_for & names for row in load_extensions().rows.values()}
    there = {name: users for name, users in users.items() if users and name not in resolution.versions}
    if not there or resolution.choice.build.toolkit is None:
        return None
    whose = ", ".join(sorted(set[str]().union(*there.values())))
    return f"{whose} can use {', '.join(there)}; what fits here: gpuinstall extensions {' '.join(there)}"


def check_compiling(extension: Extension, choice: ExtensionChoice, request: LockRequest, session: Session) -> None:
    """Raise NoBuildError where an extension without a file that fits cannot be compiled, or nobody asked for that."""
    name, known, build = extension.name, known_builds().get(extension.name), request.choice.build
    if choice.refusal:
        raise NoBuildError(choice.refusal.code, choice.refusal.message, hint=f"Leave {name} out")
    if known and not known.compiles:
        return
    if session.sourcing.build_extensions and not extension.unclaimed:
        session.reporter.warn(f"no prebuilt file of {name} runs here: gpuinstall extensions {name}")
        return
    site = this_site(request.choice, {"torch": str(build.torch)}, request.machine, session)
    needs = build_needs(known, site, here=request.builds_here) if known else ()
    rows = choice.closest
    why = [f"{row.candidate[0].wheel.filename} {row.reason.message}" for row in rows[:REASONS]]
    why += [f"{len(rows) - REASONS} other reasons: gpuinstall extensions {name} --all"] if len(rows) > REASONS else []
    compiling = f"the same with --build-extensions   # {', '.join(needs) or 'compiles it from its sdist'}"
    elsewhere = "the same with --extension-source https://index.example/{name}/   # a page that has it"
    raise NoBuildError(
        "no-prebuilt-extension",
        f"no prebuilt file of {name} runs here",
        why="\n".join(why) or f"{', '.join(source.id for source in extension.sources) or 'no source'} has no file",
        hint=elsewhere if extension.unclaimed else f"{compiling}\n{elsewhere}",
    )


def without_torch(request: LockRequest, torch: Version) -> LockRequest:
    """The same without a release of torch."""
    return _only(request, {build.name for build in request.builds if build.torch != torch})


def _only(request: LockRequest, names: Collection[str]) -> LockRequest:
    catalog = request.catalog.without(lambda build: not (build.absent or build.name in names), "without-extension")
    return replace(request, catalog=catalog)
