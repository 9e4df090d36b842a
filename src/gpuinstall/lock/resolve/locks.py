"""Resolve lock requests by trying alternatives in order.

The order is: the locked torch and versions, the locked versions as preferences, another
Python, and with ``--relax`` fewer pins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from packaging.version import Version

from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
    MachineError,
    NoBuildError,
    UnreachableError,
)
from gpuinstall.base.finding import Reason
from gpuinstall.base.location import locate_requirement
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.requirement import Constraint, is_http_url
from gpuinstall.base.text import join_names
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version, version_key
from gpuinstall.catalog.pages import parse_files
from gpuinstall.lock.file.lock import (
    Lock,
    LockedFile,
    list_locked_files,
)
from gpuinstall.lock.request.lock_request import LockRequest, plan_or_raise
from gpuinstall.lock.request.lock_sources import report_linked_hosts
from gpuinstall.lock.request.project import find_built_requirements
from gpuinstall.lock.resolve.ask import collect_pages
from gpuinstall.lock.resolve.explain import (
    NO_CODE,
    explain_build,
    explain_refusal,
    find_doubts,
    list_uninspected,
)
from gpuinstall.lock.resolve.extensions import (
    choose_prebuilt,
    create_questions_with_files,
)
from gpuinstall.lock.resolve.facts import TORCH_ADDED, Found, Refused
from gpuinstall.lock.resolve.lane import Lane
from gpuinstall.lock.resolve.live_builds import add_live_builds
from gpuinstall.lock.resolve.previous import (
    NOTHING,
    Previous,
    keep_torch,
    map_pins_by_name,
)
from gpuinstall.lock.resolve.question import (
    PER_TARGET,
    TARGETS_DISAGREE,
    Alternative,
    Question,
    Requests,
    allow_any_version,
    create_questions,
)
from gpuinstall.lock.resolve.search import search
from gpuinstall.lock.uv.builds import (
    BuildContext,
    check_builds,
    find_source_builds,
    report_builds,
)
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.errors import find_mentioned_names
from gpuinstall.lock.uv.fetch import find_known_hashes
from gpuinstall.lock.uv.resolution import (
    Resolution,
    check_indexes,
    check_required_hashes,
    check_sources,
    find_requested_hashes,
    keep_requested_files,
    record_own_indexes,
)
from gpuinstall.machine.vendors import select_rules
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan.python import get_minor_version
from gpuinstall.plan.values import HELD_BACK
from gpuinstall.sources import Sources
from gpuinstall.sources.addresses import Addresses
from gpuinstall.sources.gate import FIND_LINKS
from gpuinstall.sources.session import INDEX_PAGES, Session
from gpuinstall.sources.web import ALL_PACKAGES, Page

Resolutions = list[Resolution]
_Resolve = Callable[[Requests, Alternative], Resolutions | Conflict]

TARGETS_AT_ONCE = 6
"""Maximum number of concurrent uv runs; more would compete for cores."""

PROPOSALS = 4
"""Maximum number of torch versions that the first target proposes."""

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
    check_required_hashes(requests[0].request.requirements, session.sources)
    _renew_pages(requests[0], session, previous)
    # Ask uv once. Threads that start together would each run uv.
    session.find_default_index()
    resolve = partial(resolve_alternative, session=session)
    outcome = _resolve_with_locked_torch(requests, previous, session.sources, resolve)
    outcome = outcome or _resolve_with_live_builds(requests, previous, session)
    preferred = requests[0].request.preferred
    resolutions = [
        one.with_warnings(_find_changed_versions(one.versions, preferred))
        for one in outcome
    ]
    addresses = session.find_listed_sources().addresses
    family = session.sources.uv.family
    _report_indexes(resolutions, addresses, family, session.reporter)
    for one in resolutions:
        files = list_locked_files(one.packages)
        report_linked_hosts(files, addresses, session.client, session.reporter)
        builds = [
            build
            for build in find_source_builds(one.packages)
            if (build.package, build.version) not in previous.releases
        ]
        site = _create_build_context(one, session.environment, session.sources)
        report_builds(builds, site, session.reporter)
    return resolutions


def _renew_pages(request: LockRequest, session: Session, previous: Previous) -> None:
    """Renew the pages of packages to upgrade, and changed projects."""
    # uv rejects --refresh offline.
    if (previous.upgrade or previous.moving) and not session.sourcing.offline:
        is_whole = previous.may_move_torch(request)
        names = {ALL_PACKAGES} if is_whole else previous.moving
        session.client.renewed = frozenset(names)
        session.outdated.add(INDEX_PAGES)
    known = () if previous.upgrade else previous.locks
    digests = {"", *(lock.record.build_files_digest for lock in known)}
    # uv compares only the modification times of a project's own files.
    if previous.locks and request.request.build_files_digest not in digests:
        built = find_built_requirements(request.request.requirements, session.folder)
        located = [locate_requirement(one, session.folder) for one in built]
        session.outdated.update(one.text for one in located)


def _resolve_with_live_builds(
    requests: Requests, previous: Previous, session: Session
) -> Resolutions:
    """Resolve with the builds that the sources list."""
    live, unreachable = add_live_builds(requests, session)
    if unreachable:
        raise create_resolution_error(unreachable, requests)
    index = session.sources.addresses.torch_index
    _check_locked_torch(live, previous.locks, index, session.client.unreachable(index))
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
    requests: Requests, previous: Previous, sources: Sources, resolve: _Resolve
) -> Resolutions:
    """Resolve without pages of the torch family, or return an empty list.

    The list is empty if torch may change.
    """
    locks = previous.locks
    # Locked files have no upload date.
    is_dated = sources.addresses.find_links or sources.uv.exclude_newer
    if is_dated or previous.may_move_torch(requests[0]):
        return []
    index = sources.addresses.torch_index
    with suppress(GpuInstallError):
        kept = [keep_torch(one, locks, index) for one in requests]
        wheels = tuple(chain.from_iterable(wheels for _, wheels in kept))
        live = [one for one, _ in kept]
        alternatives = previous.create_alternatives(live)
        strict = [replace(one, kept=wheels) for one in alternatives]
        outcome = _resolve_first(live, strict, resolve)
        return [] if isinstance(outcome, Conflict) else outcome
    return []


def _resolve_first(
    requests: Requests,
    alternatives: Iterable[Alternative],
    resolve: _Resolve,
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
        message = f"Python {python} is selected, because with Python {usual}, {error.why or error.message}"
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
            sites = [
                _create_build_context(one, session.environment, session.sources)
                for one in outcome
            ]
            return _check_buildable(outcome, sites, session.reporter)
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
    index: str,
    silent: UnreachableError | None,
) -> None:
    """Raise InstallationError if the torch index lacks the locked torch.

    Another source may have only a much older torch, so the lock is not changed.
    """
    absent = defaultdict[str, set[str | None]](set)
    for request in requests:
        machine = request.machine
        for build in request.catalog.builds_for(machine.os, machine.arch):
            absent[build.name].add(build.absent)
    for lock in locks:
        torch = lock.versions.get("torch", "")
        if "unreachable" not in absent[torch] or None in absent[torch]:
            continue
        error = InstallationError(
            "torch-index-lost",
            f"{index} cannot be reached, and no other source lists torch {torch} of {lock.name}; the lock is unchanged",
            why=silent.why if silent else None,
            hint=silent.fixes if silent else "Try again later",
        )
        files = [file.url for file in lock.files if file.package == "torch"]
        if not any(map(is_http_url, files)):
            error.evidence = f"{lock.name} has torch from {join_names(files)}"
            error.fixes = (FIND_LINKS, *error.fixes)
        raise error


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
    resolutions: Resolutions, sites: Iterable[BuildContext], reporter: Reporter
) -> Resolutions | Conflict:
    """Return the resolutions, or the conflict if a package cannot be built."""
    for one, site in zip(resolutions, sites, strict=True):
        builds = find_source_builds(one.packages)
        try:
            check_builds(builds, site, here=one.request.builds_here)
        except NoBuildError as error:
            report_builds(builds, site, reporter)
            return Conflict(error)
    return resolutions


def _create_build_context(
    resolution: Resolution, environ: Mapping[str, str], sources: Sources
) -> BuildContext:
    """Return the machine and environment variables for source builds."""
    return BuildContext(
        backend=resolution.choice.build.backend,
        versions=resolution.versions,
        machine=resolution.request.machine,
        environ=environ,
        sources=sources,
    )


def _report_indexes(
    resolutions: Iterable[Resolution],
    addresses: Addresses,
    family: Collection[str],
    reporter: Reporter,
) -> None:
    """Report the indexes from the user's configuration.

    Args:
        resolutions: The resolution for each target.
        addresses: The sources of packages.
        family: The packages that only PyTorch's sources may provide.
        reporter: Reports the indexes.
    """
    own = addresses.own_indexes
    packages = defaultdict[str, dict[str, None]](dict)
    for resolution in resolutions:
        for package in resolution.packages:
            if package.index:
                packages[package.index][package.name] = None
        # A lock has no index for torch from find-links, only the path of the file.
        for file in list_locked_files(resolution.packages):
            if file.package in family:
                for index in addresses.find_own_links(file.location):
                    packages[index][file.package] = None
    for index, names in packages.items():
        place = f"{own[index].value} (from {own[index].file})"
        reporter.step("Index", f"{place}: the source of {join_names([*names])}")


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


# One alternative for all targets, with a common torch.


def resolve_targets(
    requests: Requests, alternative: Alternative, session: Session
) -> Resolutions | Conflict:
    """Resolve one alternative, with the first possible extension files.

    Args:
        requests: The request for each target.
        alternative: The preferences and pins.
        session: The HTTP clients and caches.

    Returns:
        A resolution for each target, or the first conflict.
    """
    conflicts = []
    try:
        for files in create_questions_with_files(
            create_questions(requests, alternative),
            partial(choose_prebuilt, session=session),
            session.sources.addresses,
            session.reporter,
        ):
            outcome = _resolve_together(
                files.questions, lambda question: _resolve_one(Lane(question, session))
            )
            if not isinstance(outcome, Conflict):
                return [one.with_warnings(files.remarks) for one in outcome]
            conflicts.append(outcome)
    except (MachineError, NoBuildError) as error:
        return Conflict(error)
    return conflicts[0]


def _resolve_together(
    questions: Sequence[Question], resolve: Callable[[Question], Resolution | Conflict]
) -> Resolutions | Conflict:
    """Resolve for all targets with the torch that the first one selects."""
    resolve_all = partial(map_concurrently, resolve, at_once=TARGETS_AT_ONCE)
    [first, *others] = sorted(questions, key=lambda one: str(one.target))
    if first.common is None:
        return _mark_conflicts(resolve_all(questions))
    remaining = first.torches
    conflicts: list[Conflict] = []
    while remaining and len(conflicts) < PROPOSALS:
        proposal = resolve(first.with_torch_versions(remaining))
        if isinstance(proposal, Conflict):
            conflicts.append(proposal)
            break
        torch = proposal.choice.build.torch
        following = [
            _prefer_versions(proposal, one.with_torch_versions({torch}))
            for one in others
        ]
        together = _mark_conflicts([proposal, *resolve_all(following)])
        if not isinstance(together, Conflict):
            order = [str(question.target) for question in questions]
            return sorted(together, key=lambda one: order.index(str(one.target)))
        # The first target has an answer of its own.
        fixes = together.error.fixes
        together.error.fixes = tuple(dict.fromkeys((PER_TARGET, *fixes)))
        conflicts.append(together)
        remaining -= {torch}
    # The first conflict is about the latest torch.
    return conflicts[0]


def _prefer_versions(proposal: Resolution, question: Question) -> Question:
    """Return a question that prefers the versions of the first target."""
    family = question.catalog.family
    versions = {
        name: version
        for name, version in proposal.versions.items()
        if name not in family
    }
    return replace(question, preferences={**versions, **question.preferences})


def _mark_conflicts(
    outcomes: Iterable[Resolution | Conflict],
) -> Resolutions | Conflict:
    """Mark packages whose versions differ by target, or return a conflict."""
    resolutions: Resolutions = []
    versions: dict[str, set[str]] = defaultdict(set)
    for outcome in outcomes:
        if isinstance(outcome, Conflict):
            return outcome
        resolutions.append(outcome)
        lock_request = outcome.request
        for name, version in outcome.versions.items():
            # If each target has its own torch, the torch-family packages differ, too.
            if (
                lock_request.request.newest_per_target
                or name not in lock_request.catalog.family
            ):
                versions[name].add(Version(version).public)
    conflicting = {name for name, different in versions.items() if len(different) > 1}
    return [
        replace(one, apart=frozenset(conflicting & one.versions.keys()))
        for one in resolutions
    ]


def _resolve_one(lane: Lane) -> Resolution | Conflict:
    """Resolve a request for one target."""
    found = search(lane)
    if isinstance(found, Refused):
        return explain_refusal(found)
    resolution = _create_resolution(found, lane)
    for detail in list_uninspected(found):
        lane.session.reporter.detail("Inspected", detail)
    return resolution.with_warnings(find_doubts(found))


def _create_resolution(found: Found, lane: Lane) -> Resolution:
    """Check the sources of all files of an answer, and return the resolution.

    Raises:
        InstallationError: A file is from a source that is not configured for its package.
        UsageError: A project file requires another source or hash of a package.
    """
    question, answer = lane.question, found.answer
    request, session = question.lock_request, lane.session
    pages = collect_pages(found.known, lane, chosen=answer.build)
    client = session.client
    packages = check_sources(
        answer.packages, pages, found.bound, session.sources, session.reporter
    )
    if not session.sourcing.offline:
        listed = session.find_listed_sources()
        backend = answer.build.backend.tag
        check_indexes(packages, pages, backend, sources=listed, client=client)
    packages = record_own_indexes(
        packages, pages, sources=session.sources, client=client
    )
    addresses = session.sources.addresses
    requested = find_requested_hashes(request.request.requirements, packages, addresses)
    packages = keep_requested_files(
        packages, requested, addresses, client, session.reporter
    )
    locked = question.hashes
    files = [
        replace(file, sha256=file.sha256 or locked.get(file.url))
        for file in list_locked_files(packages)
    ]
    plan = _create_plan(found)
    return Resolution(
        request=request,
        plan=plan,
        target=request.create_target(plan.choice.build),
        packages=packages,
        hashes=find_known_hashes(files, client),
        prebuilt={**question.files, **found.known.files},
        relaxed={
            pin.name: pin
            for pin in question.optional_pins
            if pin.name in answer.dropped
        },
    )


def _create_plan(found: Found) -> Plan:
    """Return the plan of an answer, with reasons for older releases."""
    question = found.question
    lock_request = allow_any_version(question.narrowed_request, found.answer.dropped)
    choice = lock_request.choose_build(
        torch=question.torch,
        python=question.python,
        programs=explain_build(found),
    )
    plan = plan_or_raise(choice, question.lock_request.machine)
    common = Reason(HELD_BACK, question.common_limit)
    # If torch is pinned to its locked version, the plan considers no other.
    if question.is_open or not common.message or common in plan.reasons:
        return plan
    return replace(plan, reasons=(*plan.reasons, common))
