"""Resolve lock requests by trying alternatives in order.

The order is: the locked torch and versions, the locked versions as preferences, another
Python, and with ``--relax`` fewer pins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from gpuinstall.base.advice import Advice
from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
    MachineError,
    NoBuildError,
    UsageError,
)
from gpuinstall.base.finding import Reason
from gpuinstall.base.location import Location
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Constraint, is_file_url, is_http_url
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version, version_key
from gpuinstall.catalog.pages import parse_files
from gpuinstall.lock.file.lock import (
    Lock,
    LockedFile,
    Record,
    compare_requests,
    find_version_conflicts,
    list_locked_files,
)
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.lock_sources import report_linked_hosts
from gpuinstall.lock.request.project import find_built_requirements
from gpuinstall.lock.resolve.found import TORCH_ADDED
from gpuinstall.lock.resolve.kept_torch import keep_torch
from gpuinstall.lock.resolve.live_builds import add_live_builds
from gpuinstall.lock.resolve.refusals import NO_CODE
from gpuinstall.lock.resolve.resolver_input import (
    TARGETS_DISAGREE,
    Alternative,
    Requests,
    create_inputs,
)
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
from gpuinstall.plan.alternatives import runs_on_same_gpus
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.python import get_minor_version
from gpuinstall.sources.gate import FIND_LINKS
from gpuinstall.sources.session import INDEX_PAGES, Session
from gpuinstall.sources.web import ALL_PACKAGES, OFFLINE_HINT

PYTHONS = 2
"""Maximum number of other Python versions to try."""


def resolve_locks(
    requests: Requests,
    session: Session,
    *,
    locks: Sequence[Lock] = (),
    moving: Collection[str] = (),
    upgrade: bool = False,
    installed: Mapping[str, str] | None = None,
) -> Resolutions:
    """Resolve lock requests with the builds that indexes currently list.

    Args:
        requests: The request for each target.
        session: The HTTP clients and caches.
        locks: The existing locks, whose versions are kept where possible.
        moving: The only packages to upgrade.
        upgrade: Whether to upgrade all packages, and keep only the Python of the locks.
        installed: The versions to keep where possible, if there is no lock.

    Raises:
        MachineError: No build runs on a machine.
        NoBuildError: No build or no versions are compatible.
        InstallationError: A source or uv fails.
        UsageError: A package in ``moving`` is in no lock.
    """
    is_whole = upgrade or not requests[0].catalog.family.isdisjoint(moving)
    # uv rejects --refresh offline.
    if (upgrade or moving) and not session.sourcing.offline:
        session.client.renewed = frozenset({ALL_PACKAGES} if is_whole else moving)
        session.outdated.add(INDEX_PAGES)
    digests = {"" if upgrade else lock.record.build_files_digest for lock in locks}
    outdated = _find_outdated(requests[0].request, digests, session.folder)
    session.outdated.update(outdated)
    # Ask uv once. Threads that start together would each run uv.
    session.find_default_index()
    outcome: Resolutions | Conflict = []
    live = requests
    if not is_whole:
        outcome = _resolve_with_locked_torch(requests, locks, moving, session)
    if not outcome:
        live, unreachable = add_live_builds(requests, session)
        if unreachable:
            raise create_resolution_error(unreachable, requests)
        _check_locked_torch(live, locks, session)
        locked = [*create_locked_alternatives(live, locks, moving, upgrade=upgrade)]
        if installed:
            locked = [Alternative(preferences=installed)]
        outcome = _resolve_first(live, locked, session, requests)
    if isinstance(outcome, Conflict):
        # The last alternative keeps the fewest versions, so the request itself conflicts.
        error = outcome.error
        pythons = _list_other_pythons(live, locked[-1], error)
        outcome = _resolve_first(live, pythons, session, requests) or outcome
        if isinstance(outcome, Conflict):
            report_linked_hosts(_find_listed_files(live, session), session)
    if not isinstance(outcome, Conflict):
        preferred = live[0].request.preferred
        outcome = [
            one.with_warnings(_find_changed_versions(one.versions, preferred))
            for one in outcome
        ]
    else:
        from gpuinstall.lock.resolve import relax

        if not live[0].request.relax:
            relax.suggest_changed_request(live, error, session, resolve_alternative)
            raise error
        outcome = relax.resolve_relaxed(live, error, session, resolve_alternative)
    reported = {pair for lock in locks for pair in lock.all_versions.items()}
    _report_sources(outcome, reported, session)
    return outcome


def _resolve_with_locked_torch(
    requests: Requests,
    locks: Sequence[Lock],
    moving: Collection[str],
    session: Session,
) -> Resolutions:
    """Resolve without pages of the torch family, or return an empty list.

    The list is empty if torch may change.
    """
    sources = session.sources
    all_kept = [keep_torch(one, locks, sources.torch_index) for one in requests]
    kept = [one for one in all_kept if one]
    # Locked files have no upload date.
    if len(kept) < len(requests) or sources.find_links or sources.uv.exclude_newer:
        return []
    live = [one.request for one in kept]
    wheels = tuple(chain.from_iterable(one.wheels for one in kept))
    outcome: Resolutions | Conflict = []
    with suppress(GpuInstallError):
        alternatives = create_locked_alternatives(live, locks, moving, upgrade=False)
        strict = [replace(one, kept=wheels) for one in alternatives]
        outcome = _resolve_first(live, strict, session, live)
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
    session: Session,
    usual: Requests,
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
            outcome = resolve_alternative(requests, alternative, session, usual=usual)
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
    is_fixed = first.request.python or alternative.python or len(requests) > 1
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
        yield replace(alternative, python=python, warnings=warnings)


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
        silence = session.client.unreachable(session.sources.torch_index)
    if silence is None:
        return outcome
    return _explain_with_silence(outcome.error, silence, usual or requests, session)


def _explain_with_silence(
    conflict: GpuInstallError,
    silence: InstallationError,
    requests: Requests,
    session: Session,
) -> Conflict:
    """Return the conflict if an unreachable index is not its cause.

    Args:
        conflict: The conflict, or the error of the index.
        silence: The error of the index.
        requests: The requests, with all builds of the catalog if possible.
        session: The clients of the run, which may be offline.

    Raises:
        InstallationError: The index may have the missing build.
    """
    # Without a network, the builds in the cache are no fact.
    is_online = not session.sourcing.offline
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
        # Only a refusal of the plan means that no reachable build runs.
        unseen = "its builds were"
        if conflict.code not in {NO_CODE, TORCH_ADDED}:
            unseen = f"its torch {requests[0].plan.choice.build.name} was"
        conflict.evidence = f"{silence.message}: {unseen} not considered"
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
        create_inputs(requests)
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
    index = session.sources.torch_index
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


def _find_listed_files(requests: Requests, session: Session) -> Iterator[LockedFile]:
    """Yield the files of requested packages if a folder selects an index."""
    if session.sources.folder_sources:
        for one in chain.from_iterable(each.request.requirements for each in requests):
            page = None if one.url else session.find_page_if_reachable(one.name)
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
    own = session.sources.own_indexes
    packages = defaultdict[str, dict[str, None]](dict)
    for resolution in resolutions:
        for package in resolution.packages:
            if package.index:
                packages[package.index][package.name] = None
        # A lock has no index for torch from find-links, only the path of the file.
        for file in list_locked_files(resolution.packages):
            location = Location.parse(file.url)
            for index in own if file.package in session.sources.uv.family else ():
                if location.is_from(Location.parse(index)):
                    packages[index][file.package] = None
    for index, names in packages.items():
        origin = own[index]
        session.reporter.step(
            "Index", f"{index} (from {origin}): the source of {join_names([*names])}"
        )
    for resolution in resolutions:
        report_linked_hosts(list_locked_files(resolution.packages), session)
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


def create_locked_alternatives(
    requests: Requests,
    locks: Sequence[Lock],
    moving: Collection[str],
    *,
    upgrade: bool,
) -> Iterator[Alternative]:
    """Yield alternatives: pin the locked torch first, then only prefer it.

    Args:
        requests: The request for each target.
        locks: The existing locks.
        moving: The only packages to upgrade.
        upgrade: Whether to upgrade everything.
    """
    alternative = Alternative(python=_find_locked_python(requests[0], locks))
    if upgrade:
        yield alternative
        return
    request = requests[0].request
    versions = _find_locked_versions(request, locks, moving)
    moved = {name: versions.pop(name) for name in moving}
    hashes = _find_locked_hashes(locks, moving)
    alternative = replace(
        alternative, preferences=versions, moving=moved, hashes=hashes
    )
    torch = versions.get("torch")
    is_new = not moving and _has_new_programs(requests[0], locks)
    # Without a torch version, the build of the other PyTorch packages is unknown.
    torch_is_kept = torch and not is_new and _can_keep_torch(requests[0], torch)
    if torch_is_kept:
        by_target = {lock.target: lock.versions for lock in locks}
        # Conflicting locks, such as the sides of a merge, cannot be kept unchanged.
        is_whole = (
            not moving
            and len(by_target) == len(locks)
            and not find_version_conflicts(locks)
            and _are_locks_current(request, locks)
        )
        members = requests[0].catalog.family & versions.keys()
        yield replace(
            alternative,
            pins={name: versions[name] for name in sorted(members)},
            locks=by_target if is_whole else {},
        )
    if not moving or not torch_is_kept:
        yield alternative


def _find_locked_python(request: LockRequest, locks: Iterable[Lock]) -> str | None:
    """Return the Python version in lock files if the request allows it."""
    demand = parse_request(request.request, request.catalog, request.machine)
    for lock in locks:
        if lock.python in demand.pythons:
            return lock.python
    return None


def _find_locked_versions(
    request: Request,
    locks: Sequence[Lock],
    moving: Collection[str],
) -> dict[str, str]:
    """Return locked versions, also from ``uv.lock`` or ``poetry.lock``.

    Args:
        request: The request, with the versions of the project's own lock.
        locks: The existing locks.
        moving: The packages to upgrade.

    Raises:
        UsageError: A package to upgrade is in no lock.
    """
    locked = dict[str, str]()
    for lock in locks:
        locked |= lock.versions
    preferred = {} if moving and locks else map_pins_by_name(request.preferred)
    is_current = _are_locks_current(request, locks)
    versions = preferred | locked if is_current else locked | preferred
    for name in moving:
        if name not in versions:
            message = f"no lock in this folder has a package named {name}"
            raise UsageError("not-locked", message, hint="Check the name")
    return versions


def _are_locks_current(request: Request, locks: Iterable[Lock]) -> bool:
    """Return whether lock files match the current ``uv.lock``.

    If so, the versions of the locks take precedence.
    """
    now = Record.from_request(request)
    changes = (compare_requests(lock.record, now) for lock in locks)
    return not any(one.has_other_versions for one in changes)


def _find_locked_hashes(
    locks: Sequence[Lock], moving: Collection[str]
) -> dict[str, str]:
    """Return the SHA-256 hashes of locked files, by name and by URL."""
    hashes = {}
    for lock in locks:
        for file in lock.files:
            if file.sha256 and file.package not in moving:
                hashes[file.name] = file.sha256
                # A local file may have changed.
                if not is_file_url(file.url):
                    hashes[file.url] = file.sha256
    return hashes


def _can_keep_torch(request: LockRequest, torch: str) -> bool:
    """Return whether a request allows a torch version for the same GPUs."""
    for requirement in request.request.requirements:
        if requirement.name == "torch" and not requirement.allows(torch):
            return False
    locked = request.choose_build(torch=parse_public_version(torch))
    return runs_on_same_gpus(locked, request.outcome)


def _has_new_programs(request: LockRequest, locks: Sequence[Lock]) -> bool:
    """Return whether the request has a program that no lock includes.

    The version of a new program is selected before torch's version. The project itself,
    requested by path, and packages that are tied to torch are not programs.
    """
    locked = set(map_pins_by_name(request.request.preferred))
    for lock in locks:
        locked |= lock.requested
    return any(
        one.url is None
        and one.name not in locked
        and not request.catalog.is_tied(one.name)
        for one in request.request.requirements
    )


def map_pins_by_name(preferred: Iterable[Constraint]) -> dict[str, str]:
    """Return pinned versions by package."""
    return {one.name: one.pinned or "" for one in preferred}
