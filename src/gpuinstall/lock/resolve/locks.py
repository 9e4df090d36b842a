"""Resolve lock requests by trying alternatives in order.

The order is: the locked torch and versions, the locked versions as preferences, another
Python, and with ``--relax`` fewer pins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

from gpuinstall.base.advice import Advice
from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
    MachineError,
    NoBuildError,
)
from gpuinstall.base.finding import Reason
from gpuinstall.base.location import Location
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Constraint, is_http_url
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version, version_key
from gpuinstall.catalog.pages import parse_files
from gpuinstall.lock.file.lock import (
    Lock,
    LockedFile,
    list_locked_files,
)
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.lock_sources import report_linked_hosts
from gpuinstall.lock.request.project import find_built_requirements
from gpuinstall.lock.resolve.found import TORCH_ADDED
from gpuinstall.lock.resolve.live_builds import add_live_builds
from gpuinstall.lock.resolve.previous import (
    NOTHING,
    Previous,
    keep_torch,
    map_pins_by_name,
)
from gpuinstall.lock.resolve.question import (
    TARGETS_DISAGREE,
    Alternative,
    Requests,
    create_questions,
)
from gpuinstall.lock.resolve.refusals import NO_CODE
from gpuinstall.lock.resolve.targets import Resolutions, resolve_targets
from gpuinstall.lock.uv.builds import (
    BuildContext,
    check_builds,
    find_source_builds,
    report_builds,
)
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.errors import find_mentioned_names
from gpuinstall.lock.uv.project import locate_requirement
from gpuinstall.lock.uv.resolution import Resolution
from gpuinstall.machine.vendors import select_rules
from gpuinstall.plan import Rejected
from gpuinstall.plan.python import get_minor_version
from gpuinstall.sources.addresses import Addresses
from gpuinstall.sources.gate import FIND_LINKS
from gpuinstall.sources.session import INDEX_PAGES, Session
from gpuinstall.sources.web import ALL_PACKAGES, OFFLINE_HINT, Page

PYTHONS = 2
"""Maximum number of other Python versions to try."""


def resolve_locks(
    requests: Requests, session: Session, previous: Previous = NOTHING
) -> Resolutions:
    """Resolve lock requests with the builds that indexes currently list.

    Args:
        requests: The request for each target.
        session: The HTTP clients and caches.
        previous: The versions to keep where possible.

    Raises:
        MachineError: No build runs on a machine.
        NoBuildError: No build or no versions are compatible.
        InstallationError: A source or uv fails.
        UsageError: A package to upgrade is in no lock.
    """
    _renew_pages(requests[0], session, previous)
    # Ask uv once. Threads that start together would each run uv.
    session.find_default_index()
    outcome = _resolve_with_locked_torch(requests, previous, session)
    outcome = outcome or _resolve_with_live_builds(requests, previous, session)
    preferred = requests[0].request.preferred
    resolutions = [
        one.with_warnings(_find_changed_versions(one.versions, preferred))
        for one in outcome
    ]
    _report_sources(resolutions, previous.releases, session)
    return resolutions


def _renew_pages(request: LockRequest, session: Session, previous: Previous) -> None:
    """Renew the pages of packages to upgrade, and changed projects."""
    # uv rejects --refresh offline.
    if (previous.upgrade or previous.moving) and not session.sourcing.offline:
        is_whole = previous.may_move_torch(request)
        names = {ALL_PACKAGES} if is_whole else previous.moving
        session.client.renewed = frozenset(names)
        session.outdated.add(INDEX_PAGES)
    is_renewed, locks = previous.upgrade, previous.locks
    digests = {"" if is_renewed else lock.record.build_files_digest for lock in locks}
    outdated = _find_outdated(request.request, digests, session.folder)
    session.outdated.update(outdated)


def _resolve_with_live_builds(
    requests: Requests, previous: Previous, session: Session
) -> Resolutions:
    """Resolve with the builds that the sources list."""
    live, unreachable = add_live_builds(requests, session)
    if unreachable:
        raise create_resolution_error(unreachable, requests)
    _check_locked_torch(live, previous.locks, session)
    locked = [*previous.create_alternatives(live)]
    resolve = partial(resolve_alternative, session=session)
    with_usual = partial(resolve, usual=requests)
    outcome = _resolve_first(live, locked, with_usual)
    if not isinstance(outcome, Conflict):
        return outcome
    # The last alternative keeps the fewest versions, so the request itself conflicts.
    error = outcome.error
    pythons = _list_other_pythons(live, locked[-1], error)
    outcome = _resolve_first(live, pythons, with_usual) or outcome
    if not isinstance(outcome, Conflict):
        return outcome
    addresses = session.find_listed_sources().addresses
    files = _find_listed_files(live, addresses, session.find_page_if_reachable)
    report_linked_hosts(files, addresses, session.client, session.reporter)
    from gpuinstall.lock.resolve import relax

    if not live[0].request.relax:
        relax.suggest_running_targets(live, error)
        raise error
    return relax.resolve_relaxed(live, error, resolve, session.folder)


def _resolve_with_locked_torch(
    requests: Requests, previous: Previous, session: Session
) -> Resolutions:
    """Resolve without pages of the torch family, or return an empty list.

    The list is empty if torch may change.
    """
    locks, sources = previous.locks, session.sources
    # Locked files have no upload date.
    is_dated = sources.addresses.find_links or sources.uv.exclude_newer
    if is_dated or previous.may_move_torch(requests[0]):
        return []
    all_kept = [
        keep_torch(one, locks, sources.addresses.torch_index) for one in requests
    ]
    kept = [one for one in all_kept if one]
    if len(kept) < len(requests):
        return []
    live = [one for one, _ in kept]
    wheels = tuple(chain.from_iterable(wheels for _, wheels in kept))
    outcome: Resolutions | Conflict = []
    with suppress(GpuInstallError):
        alternatives = previous.create_alternatives(live)
        strict = [replace(one, kept=wheels) for one in alternatives]
        resolve = partial(resolve_alternative, session=session)
        outcome = _resolve_first(live, strict, resolve)
    if isinstance(outcome, Conflict):
        return []
    known = {file.url for lock in locks for file in lock.files}
    family = requests[0].catalog.family
    for one in outcome:
        files = list_locked_files(one.packages)
        if any(file.package in family and file.url not in known for file in files):
            return []
    return outcome


def _resolve_first(
    requests: Requests,
    alternatives: Iterable[Alternative],
    resolve: Callable[[Requests, Alternative], Resolutions | Conflict],
) -> Resolutions | Conflict:
    """Resolve the first possible alternative.

    Returns:
        The resolutions or the last conflict; an empty list without alternatives.

    Raises:
        InstallationError: The last alternative needs a source that does not respond.
    """
    outcome: Resolutions | Conflict = []
    silence = None
    for alternative in alternatives:
        try:
            outcome = resolve(requests, alternative)
        except InstallationError as error:
            if error.code != "unreachable":
                raise
            # Only the locked torch may need the source.
            silence = error
            continue
        silence = None
        if not isinstance(outcome, Conflict):
            return [one.with_warnings(alternative.warnings) for one in outcome]
    if silence:
        raise silence
    return outcome


def _list_other_pythons(
    requests: Requests, alternative: Alternative, error: GpuInstallError
) -> Iterator[Alternative]:
    """Yield an alternative with other Pythons, unless the Python is fixed.

    Args:
        requests: The request for each target.
        alternative: The last alternative with locked versions.
        error: Its error.
    """
    first = requests[0]
    is_fixed = first.request.python or alternative.other_python or len(requests) > 1
    # With another error, there may be no plan.
    if is_fixed or error.code not in {"requirements-conflict", "only-binary"}:
        return
    usual = first.plan.choice.python
    pythons = set(map(get_minor_version, first.machine.pythons or ()))
    for python in sorted(pythons - {usual}, key=version_key, reverse=True)[:PYTHONS]:
        message = (
            f"Python {python} is selected, because with Python {usual}, {error.message}"
        )
        warnings = (Reason("other-python", message),)
        yield replace(alternative, other_python=python, warnings=warnings)


def resolve_alternative(
    requests: Requests,
    alternative: Alternative,
    session: Session,
    *,
    usual: Requests | None = None,
) -> Resolutions | Conflict:
    """Resolve one alternative, and check that its sdists can be built.

    Args:
        requests: The request for each target.
        alternative: The preferences and pins.
        session: The HTTP clients and caches.
        usual: The requests with all builds of the catalog.

    Raises:
        InstallationError: A source does not respond, or uv fails.
    """
    silence: InstallationError | None
    try:
        outcome = resolve_targets(requests, alternative, session)
    except InstallationError as failure:
        if failure.code != "unreachable":
            raise
        silence = failure
        outcome = Conflict(failure)
    else:
        if not isinstance(outcome, Conflict):
            return _check_buildable(outcome, session)
        silence = session.client.unreachable(session.sources.addresses.torch_index)
    if silence is None:
        return outcome
    # Without a network, the builds in the cache are no fact.
    is_online = not session.sourcing.offline
    return _explain_with_silence(
        outcome.error, silence, usual or requests, is_online=is_online
    )


def _explain_with_silence(
    conflict: GpuInstallError,
    silence: InstallationError,
    requests: Requests,
    *,
    is_online: bool,
) -> Conflict:
    """Return the conflict if an unreachable index is not its cause.

    Args:
        conflict: The conflict, or the error of the index.
        silence: The error of the index.
        requests: The requests, with all builds of the catalog if possible.
        is_online: Whether the sources were asked.

    Raises:
        InstallationError: The index may have the missing build.
    """
    is_by_fact = is_online and _is_decided_by_fact(conflict.code, requests)
    names = find_mentioned_names(conflict.sentence, requests[0].catalog.family)
    if not names and not is_by_fact and conflict is not silence:
        return Conflict(conflict)
    error = create_resolution_error(silence, requests)
    if error is not silence:
        # Online, the fixes of the conflict do not need the index.
        is_known = is_online and conflict.code == error.code
        return Conflict(conflict if is_known else error)
    if is_by_fact:
        conflict.evidence = f"{silence.message}: its builds were not considered"
        conflict.fixes += silence.fixes
        return Conflict(conflict)
    if conflict is not silence:
        silence.evidence = conflict.sentence
    if conflict.code == TARGETS_DISAGREE:
        silence.fixes = conflict.fixes + silence.fixes
    raise silence


def _is_decided_by_fact(code: str, requests: Requests) -> bool:
    """Return whether a fact about the machine or a package causes an error."""
    codes = {NO_CODE, TORCH_ADDED}
    for request in requests:
        rules = select_rules(request.machine)
        codes.update(rules.code_reasons, rules.driver_reasons)
    return code in codes


def create_resolution_error(
    silence: InstallationError, requests: Requests
) -> GpuInstallError:
    """Return the error of an impossible request, or of an unreachable source.

    Args:
        silence: The error of the source.
        requests: The requests, with all builds of the catalog.
    """
    try:
        create_questions(requests)
    except (MachineError, NoBuildError) as error:
        # Another build would need the source.
        for request in requests:
            if isinstance(request.outcome, Rejected):
                error.fixes = request.outcome.fixes
                break
        error.fixes += silence.fixes
        error.evidence = silence.sentence
        return error
    return silence


def _check_locked_torch(
    requests: Requests,
    locks: Iterable[Lock],
    session: Session,
) -> None:
    """Raise InstallationError if the torch index lacks the locked torch.

    Another source may have only a much older torch, so the lock is not changed.
    """
    index = session.sources.addresses.torch_index
    builds = [
        build
        for request in requests
        for build in request.catalog.builds_for(
            request.machine.os, request.machine.arch
        )
    ]
    for lock in locks:
        torch = lock.versions.get("torch")
        reasons = {build.absent for build in builds if build.name == torch}
        if "unreachable" in reasons and None not in reasons:
            variable = ("GPUINSTALL_TORCH_INDEX=https://index.example/whl",)
            error = InstallationError(
                "torch-index-lost",
                f"{index} cannot be reached, and no other source lists torch {torch} of {lock.name}; the lock is unchanged",
                hint=(
                    "Try again later",
                    Advice("export", variable, note="to use a mirror"),
                ),
            )
            silent = session.client.unreachable(index)
            if silent:
                error.why = silent.why
            if session.sourcing.offline:
                error.fixes = OFFLINE_HINT
            files = [file.url for file in lock.files if file.package == "torch"]
            if not any(map(is_http_url, files)):
                error.evidence = f"{lock.name} has torch from {join_names(files)}"
                error.fixes = (FIND_LINKS, *error.fixes)
            raise error


def _find_outdated(
    request: Request, digests: Collection[str], folder: Path
) -> Iterator[str]:
    """Yield local projects to rebuild, because their files changed.

    uv compares only the modification times of a project's own files.

    Args:
        request: The request.
        digests: The digests of these files in the locks; empty if nothing was built.
        folder: The folder to which paths are relative.
    """
    if digests and request.build_files_digest not in {"", *digests}:
        built = find_built_requirements(request.requirements, folder)
        yield from (locate_requirement(one, folder).text for one in built)


def _find_listed_files(
    requests: Requests, addresses: Addresses, find_page: Callable[[str], Page | None]
) -> Iterator[LockedFile]:
    """Yield the files of requested packages if a folder selects an index."""
    if addresses.folder_sources:
        for one in chain.from_iterable(each.request.requirements for each in requests):
            page = None if one.url else find_page(one.name)
            for file in parse_files(page) if page else ():
                yield LockedFile(one.name, file.url)


def _check_buildable(
    resolutions: Resolutions, session: Session
) -> Resolutions | Conflict:
    """Return the resolutions, or the conflict if a package cannot be built."""
    for one in resolutions:
        builds, site = (
            find_source_builds(one.packages),
            _create_build_context(one, session),
        )
        try:
            check_builds(builds, site, here=one.request.builds_here)
        except NoBuildError as error:
            report_builds(builds, site, session.reporter)
            return Conflict(error)
    return resolutions


def _create_build_context(resolution: Resolution, session: Session) -> BuildContext:
    """Return the machine and environment variables for source builds."""
    return BuildContext(
        backend=resolution.choice.build.backend,
        versions=resolution.versions,
        machine=resolution.request.machine,
        environ=session.environment,
        sources=session.sources,
    )


def _report_sources(
    resolutions: Iterable[Resolution],
    reported: Collection[tuple[str, str]],
    session: Session,
) -> None:
    """Report source builds and the indexes from the user's configuration.

    Args:
        resolutions: The resolution for each target.
        reported: Releases whose builds were reported before.
        session: The HTTP clients and caches.
    """
    addresses = session.find_listed_sources().addresses
    own = addresses.own_indexes
    packages = defaultdict[str, dict[str, None]](dict)
    for resolution in resolutions:
        for package in resolution.packages:
            if package.index:
                packages[package.index][package.name] = None
        # A lock has no index for torch from find-links, only the path of the file.
        for file in list_locked_files(resolution.packages):
            if file.package in session.sources.uv.family:
                for index in addresses.find_own_links(Location.parse(file.url)):
                    packages[index][file.package] = None
    for index, names in packages.items():
        origin = own[index]
        session.reporter.step(
            "Index", f"{index} (from {origin}): the source of {join_names([*names])}"
        )
    for resolution in resolutions:
        files = list_locked_files(resolution.packages)
        report_linked_hosts(files, addresses, session.client, session.reporter)
        builds = find_source_builds(resolution.packages)
        new = [one for one in builds if (one.package, one.version) not in reported]
        report_builds(new, _create_build_context(resolution, session), session.reporter)


def _find_changed_versions(
    versions: Mapping[str, str],
    preferred: Iterable[Constraint],
) -> Iterator[Reason]:
    """Yield the project's locked versions that differ from the resolved ones.

    Args:
        versions: The resolved versions.
        preferred: The versions of the project's own lock.
    """
    others = []
    for name, before in map_pins_by_name(preferred).items():
        now = versions.get(name, before)
        if parse_public_version(now) != parse_public_version(before):
            others.append(f"{name} {now} (locked: {before})")
    if others:
        message = "these versions differ from the project's own lock"
        yield Reason("team-lock-differs", f"{message}: {', '.join(others)}")
