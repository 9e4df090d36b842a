"""Explain an answer with its facts, its dependencies, and uv's conflicts.

All functions are pure: nothing is resolved, read, or downloaded for a sentence. Without
a known reason, none is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from packaging.version import Version

from gpuinstall.base.advice import Hint, make_change
from gpuinstall.base.errors import GpuInstallError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import FROM_METADATA, Requirement, requirement_names
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import COMPANIONS
from gpuinstall.lock.resolve.facts import (
    SEARCH_ENDED,
    TORCH_ADDED,
    Fact,
    Facts,
    Found,
    Newest,
    Refused,
    is_torch_added,
)
from gpuinstall.lock.resolve.question import (
    Question,
    is_library_of_torch,
    list_torch_versions,
    suggest_request_without,
)
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.errors import FILTERED, find_mentioned_names
from gpuinstall.plan import Rejected
from gpuinstall.plan.values import PROGRAM_HELD_BACK, ProgramConstraints
from gpuinstall.wheels.compatibility import SHARED_FILES, TEST_IT, Compatibility
from gpuinstall.wheels.learned.row import WheelRow
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import is_for_cuda
from gpuinstall.wheels.package import remove_cuda_label

NO_CODE = "no-code-in-package"
ASSUMED_GLIBC = "assumed-glibc"
"""The code of a warning that the assumed glibc excludes a release."""

MAY_NOT_RUN = "part-without-code"
"""The code of a warning that excludes no release."""
NOT_INSPECTED = "not-inspected"

_OLD_DRIVER = "driver-too-old"
_WITHOUT_GPU = "no-gpu"
_WITHOUT_LIBRARY = "library-missing"


_BY_REQUEST = {"requirements-conflict", "package-not-found"}
"""The codes of conflicts between requirements."""


def explain_build(found: Found) -> ProgramConstraints:
    """Return why the packages of the request select a build of torch."""
    chosen = found.answer.build
    unserved = {}
    for version, build in found.builds.items():
        if build == chosen:
            break
        if build.torch == chosen.torch:
            fact = find_rejecting_fact([version], found.facts_here)
            conflict = "the other packages require a different build"
            unserved[build.backend.tag] = fact.explain(version) if fact else conflict
    older = [one.message for one in explain_older(found) if not is_warning(one)]
    notes = (*older, *_explain_added_torch(found))
    return ProgramConstraints(chosen, explain_torch(found), unserved, notes)


def is_warning(reason: Reason) -> bool:
    """Return whether a reason for an older release is a warning."""
    return reason.code != PROGRAM_HELD_BACK


# Torch.


def explain_torch(found: Found) -> str:
    """Return why torch is not the newest that runs, or ""."""
    question = found.question
    torch = found.answer.build.torch
    runnable = list_torch_versions(question.lock_request)
    newer = [one for one in runnable if one > torch]
    if not newer:
        return ""
    if torch == question.common:
        common = f"torch {torch} is the newest that all targets support"
        return question.common_limit or common
    limits = {one: _find_torch_limit(one, found) for one in newer}
    package, _ = limits[newer[-1]]
    if package or found.is_kept("torch"):
        # A reason that excludes only the latest version is not decisive.
        without = next(one for one in newer if limits[one][0] == package)
        why = limits[without][1] or f"torch {torch} is locked"
        return f"{why}; torch {without} would run here"
    conflict = found.conflicts.get("torch")
    why = conflict.format(["torch"]) if conflict else ""
    message = f"torch is {torch} instead of {newer[0]}"
    return f"{message}: {why}" if why else message


def _find_torch_limit(torch: Version, found: Found) -> tuple[str, str]:
    """Return the package that excludes a torch, with a sentence.

    A program is the reason, a dependency, a fact, or a companion, in this order.
    """
    requested = {one.name for one in found.question.programs}
    demands = sorted(
        found.find_excluding_demands("torch", torch),
        key=lambda one: (one[0] in found.bound, one[0] not in requested),
    )
    sentences = {}
    for package, version, one in demands:
        requirers = () if package in requested else found.find_requirers(package)
        path = f"{format_requirers(requirers, package)}, and " if requirers else ""
        sentences[package] = path + _format_demand(package, version, one)
    labels = [label for label, build in found.builds.items() if build.torch == torch]
    fact = find_rejecting_fact(labels, found.facts_here)
    first, why = next(iter(sentences.items()), ("", ""))
    if fact and (first in found.bound or not first):
        return fact.package, fact.explain(labels[0])
    # The version of a companion follows from a locked torch.
    is_decided = first in found.bound and found.is_kept("torch")
    return ("", "") if is_decided else (first, why)


def find_rejecting_fact(torches: Sequence[str], facts: Iterable[Fact]) -> Fact | None:
    """Return a fact that rejects all of these builds, if any."""
    if not torches:
        return None
    return next((one for one in facts if all(map(one.rejects, torches))), None)


def _explain_added_torch(found: Found) -> Iterator[str]:
    """Yield a note if torch is added to packages that do not require it."""
    question, versions = found.question, found.answer.versions.items()
    if question.programs and is_torch_added(question, found.known.log, versions):
        is_locked = question.lock_request.request.preferred
        without = "; uv sync installs the project without it" if is_locked else ""
        yield f"torch is added, although no requested package requires it{without}"


# Older releases.


def explain_older(found: Found) -> list[Reason]:
    """Return requested packages below their latest release, with a cause.

    Packages that facts exclude have a warning of their own.
    """
    reported = find_newer_facts(found)
    reasons: list[Reason] = []
    for package, newest in found.newest.items():
        selected = found.find_version(package)
        if selected and package not in reported:
            reasons += filter(
                None, [_explain_release(package, selected, newest, found)]
            )
    for package, before in found.question.moving.items():
        version = found.answer.versions.get(package)
        is_own = package in {*found.newest, *found.bound, *reported}
        if version == before and not is_own:
            release = _format_release(package, before)
            message = f"{release} is the latest version that all requirements allow"
            reasons.append(Reason(PROGRAM_HELD_BACK, message))
    return reasons


def _explain_release(
    package: str, selected: Version, newest: Newest, found: Found
) -> Reason | None:
    """Return why a package is not at its latest release, if it is not."""
    sentence = f"{package} is {selected} instead of {newest.version}"
    conflict = found.conflicts.get(package)
    if newest.glibc and newest.version >= selected:
        if newest.version == selected:
            sentence = f"{package} {selected} is built from source: its wheel"
        else:
            sentence += ", which"
        requires = f"{sentence} requires glibc {newest.glibc}"
        return _explain_glibc(requires, newest.glibc, found.question)
    if newest.version <= selected:
        return None
    reasons = _find_limits(package, newest.version, found)
    if conflict:
        facts = find_deciding_facts(conflict, found.known)
        reasons = [conflict.format([package]), *(fact.why for fact in facts[:1])]
    elif found.is_kept(package) and not reasons:
        reasons = ["it is locked"]
    why = ", and ".join(filter(None, reasons))
    sentence += f": {why}" if why else ""
    _, glibc = conflict.incompatible if conflict else ("", "")
    if glibc:
        return _explain_glibc(sentence, glibc, found.question)
    return Reason(PROGRAM_HELD_BACK, sentence)


def _find_limits(package: str, version: Version, found: Found) -> list[str]:
    """Return the first dependency of the answer that excludes a release.

    A torch that the release itself requires, and that does not run, is the reason first.
    """
    question = found.question
    for one in found.known.log.find_dependencies(package, str(version)):
        if one.name == "torch" and not any(map(one.allows, question.torches)):
            torches = {build.torch for build in question.catalog.builds}
            allowed = [torch for torch in torches if one.allows(torch)]
            limits = [
                f"{format_limit(limit)} is requested"
                for limit in question.find_limits("torch")
                if allowed and not any(map(limit.allows, allowed))
            ]
            return [_format_demand(package, str(version), one), *limits]
    excluding = found.find_excluding_demands(package, version)
    return [_format_demand(*one) for one in excluding][:1]


def _explain_glibc(requires: str, glibc: str, question: Question) -> Reason:
    """Return the reason for an older release because of the target's glibc."""
    lock_request = question.lock_request
    if lock_request.builds_here:
        system = f"this system has glibc {lock_request.machine.glibc}"
        return Reason(PROGRAM_HELD_BACK, f"{requires}; {system}")
    assumed = f"the lock assumes glibc {question.target.glibc}"
    return Reason(ASSUMED_GLIBC, f"{requires}; {assumed} (--glibc {glibc} allows it)")


# Facts.


def find_deciding_facts(conflict: Conflict, known: Facts) -> list[Fact]:
    """Return the facts about packages in uv's conflict."""
    facts = [fact for fact in known.facts.values() if fact.why]
    if conflict.error.code != SEARCH_ENDED:
        if not conflict.is_about_builds:
            return []
        names = {fact.package for fact in facts}
        mentioned = find_mentioned_names(conflict.message, names)
        facts = [fact for fact in facts if fact.package in mentioned]
    return [fact for fact in facts if fact.excludes] or facts


def find_newer_facts(found: Found) -> dict[str, Fact]:
    """Return the fact that rejects the latest release of each package."""
    newer = [one for one in found.known.facts.values() if _is_newer(one, found)]
    newest_last = sorted(newer, key=lambda fact: Version(fact.version))
    return {fact.package: fact for fact in newest_last}


def _is_newer(fact: Fact, found: Found) -> bool:
    """Return whether a fact rejects a release above the selected one."""
    # The version of a companion follows from torch's.
    if not fact.why or fact.package in COMPANIONS & found.bound:
        return False
    selected = found.find_version(fact.package)
    if selected and parse_public_version(fact.version) <= selected:
        return False
    return fact.rejects(found.answer.torch)


# Sentences.


def _format_release(package: str, version: str) -> str:
    return f"{package} {parse_public_version(version)}"


def _format_demand(package: str, version: str, demand: Requirement) -> str:
    text = remove_marker(demand).text
    text = text.replace("==", " ") if demand.is_exact else text
    return f"{_format_release(package, version)} requires {text}"


def remove_marker(requirement: Requirement) -> Requirement:
    """Return a copy of a requirement without its environment marker."""
    return replace(requirement, marker=None, written="")


def format_requirers(requirers: Sequence[str], package: str = "it") -> str:
    """Return how the first of these packages requires another one."""
    first, *others = requirers
    if not others:
        return f"{first} requires {package}"
    if len(others) == 1:
        return f"{first} requires {others[0]}, which requires {package}"
    return f"{first} requires {package} through {others[0]} and {len(others) - 1} more"


def format_limit(requirement: Requirement) -> str:
    """Return a requirement without its marker, and with its file, if any."""
    origin = requirement.origin
    text = remove_marker(requirement).text
    return f"{text} ({origin})" if origin.is_in_file else text


# Doubts.


def find_doubts(found: Found) -> list[Reason]:
    """Return warnings about excluded releases and doubtful packages."""
    conflicts = load_members().find_conflicts(found.answer.versions)
    reasons = [
        *_explain_exclusions(found),
        *filter(is_warning, explain_older(found)),
        *_explain_additions(found),
        *(Reason("packages-clash", message) for message in conflicts),
        *_find_doubtful_packages(found),
    ]
    return [*dict.fromkeys(reasons)]


def _explain_exclusions(found: Found) -> Iterator[Reason]:
    newer = find_newer_facts(found)
    requested = found.question.requested
    for package, fact in newer.items():
        version = found.find_version(package)
        if not version and newer.keys() & {
            *found.known.log.find_requirers(package, requested)
        }:
            # Only a release that has its own warning requires it.
            continue
        instead = "other versions of the packages that require it are selected"
        if version:
            unread = found.known.format_unread_releases(package, version)
            instead = f"{package} {version} is selected{unread}"
        yield Reason("older-for-code", f"{fact.why}; {instead}")


def _explain_additions(found: Found) -> Iterator[Reason]:
    """Yield what gpuinstall adds to the request, and missing extras."""
    for fact in found.facts_here:
        if fact.requires:
            libraries = " and ".join(fact.requires)
            added = f"added {libraries}, which contains the library"
            yield Reason("library-added", f"{fact.why}; {added}")
    for package, version, extra in sorted(found.answer.missing_extras):
        if package in found.question.requested:
            name = f"{package} {version}".strip()
            yield Reason("no-such-extra", f"{name} has no extra {extra}")


def _find_doubtful_packages(found: Found) -> Iterator[Reason]:
    """Yield warnings about packages that may not run on the machine."""
    doubts = {name: _find_doubt(one, found) for name, one in found.inspected.items()}
    for package, result in found.inspected.items():
        row, doubt = result.row, doubts[package]
        requirers = found.find_requirers(package)
        if doubt and doubt.code == NOT_INSPECTED:
            if _decides(package, found):
                yield Reason(NOT_INSPECTED, _format_uninspected(row, found))
        elif doubt and not any(
            _is_implied(doubt, doubts.get(one)) for one in requirers
        ):
            remedy = _describe_remedy(result, doubt, found)
            name = f"{package} {found.answer.versions[package]}"
            if requirers:
                name = f"{name} ({format_requirers(requirers)})"
            yield Reason(MAY_NOT_RUN, f"{name} {doubt.message}{remedy}")
        if found.question.has_no_gpu:
            continue
        if row.opens and package in load_members().must_open:
            yield Reason(
                "opens-libraries",
                f"{package} loads {row.opens[0]} by name: import torch first, "
                "or add the library's folder to LD_LIBRARY_PATH",
            )


def _find_doubt(result: Compatibility, found: Found) -> Reason | None:
    """Return why a package may not run on the machine, if known."""
    row, rejection, warning = result.verdicts[found.answer.torch]
    # Packages with the same files have their own warning.
    is_sharing = rejection and rejection.code == SHARED_FILES
    reason = warning if is_sharing else rejection or warning
    if reason and reason.code != NOT_INSPECTED:
        return reason
    useless = _explain_useless_cuda(row, found)
    if useless:
        return Reason(_WITHOUT_GPU, useless)
    lacking = found.lacking.get(row.package)
    if lacking:
        names = join_names(lacking)
        return Reason(
            _WITHOUT_LIBRARY,
            f"may not run: it is linked to {names}, which no package in this lock provides",
        )
    is_unread = reason or row.package in found.unread
    return Reason(NOT_INSPECTED, "") if is_unread else None


def list_uninspected(found: Found) -> Iterator[str]:
    """Yield details about dependencies that were not inspected."""
    for package, result in found.inspected.items():
        doubt = _find_doubt(result, found)
        is_unread = doubt and doubt.code == NOT_INSPECTED
        if is_unread and not _decides(package, found):
            yield _format_uninspected(result.row, found)


def _decides(package: str, found: Found) -> bool:
    """Return whether a package is requested, or replaces a release.

    The vendor documents the CUDA of some packages.
    """
    if package in found.question.requested:
        return True
    is_documented = package in load_members().stated
    return not is_documented and bool(found.known.find_excluded_versions(package))


def _format_uninspected(row: WheelRow, found: Found) -> str:
    how = "inspected only in part" if row.depth else "not inspected"
    gpus = [f"{gpu.label} ({gpu.code_name})" for _, gpu in found.question.gpus]
    return (
        f"{row.package} {row.version} may lack code for {join_names(gpus)}: it was {how}, "
        f"because the inspection limit was reached{TEST_IT}"
    )


def _is_implied(doubt: Reason, other: Reason | None) -> bool:
    """Return whether a doubt is the same as one about a requirer."""
    is_same = other is not None and other.code == doubt.code
    return is_same and doubt.code in {_OLD_DRIVER, _WITHOUT_GPU}


def _describe_remedy(result: Compatibility, reason: Reason, found: Found) -> str:
    """Return how a package with a warning can be used, if known."""
    row, members, builds = result.row, load_members(), found.builds
    is_misfit = reason.code not in {_WITHOUT_GPU, _WITHOUT_LIBRARY}
    if members.works_on_cpu.fullmatch(row.package):
        usable = [one for one in builds if result.runs_with([one])]
        remedy = "; it works on the CPU"
        if is_misfit and usable:
            backend = builds[usable[0]].backend
            remedy += f", and on the GPU with --backend {backend}"
        return remedy
    if members.is_optional(row.package, row.witness or ""):
        return "; it works without this library"
    return "; update the driver" if reason.code == _OLD_DRIVER else ""


def _explain_useless_cuda(row: WheelRow, found: Found) -> str:
    """Return why a package for CUDA needs another target.

    Packages that are only required are reported for their own libraries.
    """
    if not found.question.has_no_gpu:
        return ""
    why = [f"is linked to {name}" for name in row.needs if is_for_cuda(name)]
    is_named = remove_cuda_label(row.package) != row.package
    is_named |= row.package.startswith("cuda-")
    is_for_gpus = row.toolkit or row.has_runtime or row.unread
    # The wheel of cpm-kernels 1.0.11 has GPU code but no library.
    if (is_named and is_for_gpus) or (row.unread and not row.system):
        why.append("is for CUDA")
    if row.package in found.question.requested:
        version = found.answer.versions[row.package]
        required = found.known.log.find_dependencies(row.package, version)
        names = sorted({one.name for one in required})
        why += [f"requires {name}" for name in names if is_library_of_torch(name)]
    if not why:
        return ""
    return f"{why[0]}, and the target {found.question.target} has no GPU"


# Refusals.


def explain_refusal(refused: Refused) -> Conflict:
    """Return a conflict that mentions no virtual package.

    Raises:
        InstallationError: A build failed, and no fact led to it.
    """
    conflict, known = refused.conflict, refused.known
    if known.is_empty and not refused.question.bounds:
        for failure in known.unbuildable.values():
            hints = _suggest_glibc(refused)
            if not hints:
                raise failure
            message, why = failure.message, failure.why
            return Conflict(NoBuildError(ASSUMED_GLIBC, message, why=why, hint=hints))
    if conflict.unlisted:
        if refused.is_listed:
            conflict.error.fixes = ("Use another --python, or request another version",)
        return _clean(refused)
    facts = find_deciding_facts(conflict, known)
    if facts and conflict.error.code in {*_BY_REQUEST, SEARCH_ENDED}:
        return _explain_by_facts(facts, refused)
    if conflict.error.code not in _BY_REQUEST:
        return conflict
    rejected = _find_rejected_torch(refused)
    return (
        Conflict(rejected)
        if rejected
        else _explain_assumptions(_clean(refused), refused)
    )


def _clean(refused: Refused) -> Conflict:
    """Return the conflict in uv's words, with uv's hints."""
    conflict, error = refused.conflict, refused.conflict.error
    is_pinned = any(one.specifier for one in refused.question.requirements)
    # --relax keeps the constraints in the evidence.
    relax = refused.question.lock_request.request.relax
    is_fixed = relax or error.evidence or error.fixes
    if error.code == "requirements-conflict" and is_pinned and not is_fixed:
        error.fixes = (make_change("--relax", note="replaces pins that conflict"),)
    if conflict.is_about_builds:
        error.why = conflict.format() or None
    elif error.why:
        error.why = conflict.format() or error.why
    error.evidence = " · ".join(filter(None, (error.evidence, *conflict.hints))) or None
    return conflict


def _explain_assumptions(conflict: Conflict, refused: Refused) -> Conflict:
    """Report a conflict with the assumed glibc or the added torch."""
    error, log = conflict.error, refused.known.log
    if refused.glibc:
        error.code, error.fixes = ASSUMED_GLIBC, _suggest_glibc(refused)
    is_added = is_torch_added(refused.question, log, log.edges)
    if is_added and find_mentioned_names(conflict.message, {"torch"}):
        limits = " and ".join(_list_limits(refused)) or "the other packages"
        error.code = TORCH_ADDED
        error.message = f"torch, which gpuinstall adds to every request, is incompatible with {limits}"
        if FILTERED not in conflict.message:
            error.fixes = ()
    return conflict


def _list_limits(refused: Refused) -> list[str]:
    """Return the requested limits in uv's conflict, with their files."""
    return [
        format_limit(one)
        for name in dict.fromkeys(refused.conflict.limits.values())
        for one in refused.question.find_limits(name)
        if one.specifier
    ]


def _explain_by_facts(facts: list[Fact], refused: Refused) -> Conflict:
    """Return the conflict for the first requested package with a fact."""
    question, known = refused.question, refused.known
    programs = [one.name for one in question.programs]

    def rank(fact: Fact) -> tuple[bool, bool, int, int, Version]:
        place = [*programs, fact.package].index(fact.package)
        distance = len(known.log.find_requirers(fact.package, question.requested))
        limits = question.find_limits(fact.package)
        is_allowed = all(one.allows(fact.version) for one in limits)
        is_read = fact.found is not None
        return is_allowed, is_read, -place, -distance, Version(fact.version)

    newest = max(facts, key=rank)
    package, message = newest.package, newest.why
    pins = _find_deciding_pins(newest, refused)
    if pins:
        verb = "are" if len(pins) > 1 else "is"
        message += f", and {' and '.join(map(format_limit, pins))} {verb} requested"
    requirers = known.log.find_requirers(package, question.requested)
    program = next(iter(requirers), package)
    reasons = [format_requirers(requirers)] if requirers else []
    # A pin allows no older version, so none was tried.
    if package not in requirement_names(pins):
        reasons.append(_describe_older(package, refused))
    hints: list[Hint] = [suggest_request_without(program, question.lock_request)]
    if newest.found:
        hints = [*_suggest_driver(newest.found, refused), *hints]
    why = ", and ".join(reasons) or None
    return Conflict(NoBuildError(NO_CODE, message, why=why, hint=tuple(hints)))


def _describe_older(package: str, refused: Refused) -> str:
    """Return why no older release of a package is selected."""
    if refused.conflict.error.code == SEARCH_ENDED:
        return refused.conflict.error.message
    for error in refused.known.unbuildable.values():
        return error.message
    unread = refused.known.format_unread_releases(package)
    return f"no older version {'is known to run' if unread else 'runs'} here{unread}"


def _find_deciding_pins(fact: Fact, refused: Refused) -> list[Requirement]:
    """Return the pins of a rejected package, and torch's deciding limits."""
    question, found = refused.question, fact.found
    minors = found.row.torch.fits if found else ()
    torches = [Version(f"{minor}.0") for minor in minors]
    pins = [one for one in question.find_limits(fact.package) if one.is_exact]
    # Without code for the GPUs, the package runs with no torch.
    if fact.wheel and not (found and found.unusable):
        pins += [
            limit
            for limit in question.find_limits("torch")
            if limit.is_exact or (torches and not any(map(limit.allows, torches)))
        ]
    optional = {one.text for one in question.optional_pins}
    return [one for one in pins if one.text not in optional]


def _suggest_driver(found: Compatibility, refused: Refused) -> tuple[Hint, ...]:
    """Return the hint that updates the driver, if it is too old for a CUDA."""
    why, toolkit = found.unusable, found.row.toolkit
    if not why or not toolkit:
        return ()
    build = replace(refused.question.builds[0], toolkit=toolkit)
    gpus = refused.question.gpus
    fixes = [rules.find_driver_fix(build, why.code, [gpu]) for rules, gpu in gpus]
    return next(filter(None, fixes), ())


def _find_rejected_torch(refused: Refused) -> GpuInstallError | None:
    """Return the plan's refusal of the torch that a package requires."""
    question, lock_request = refused.question, refused.question.lock_request
    if question.find_limits("torch"):
        return None
    for (package, version), dependencies in refused.known.log.edges.items():
        for one in dependencies if package in question.requested else ():
            if one.name != "torch" or any(map(one.allows, question.torches)):
                continue
            torch = remove_marker(one).at(FROM_METADATA)
            pinned = lock_request.with_request_changes(requirements=(torch,))
            if isinstance(pinned.outcome, Rejected):
                error = pinned.outcome.error(lock_request.machine)
                error.why = f"{package} {version} requires {torch}"
                return error
    return None


def _suggest_glibc(refused: Refused) -> tuple[Hint, ...]:
    """Return the hint for wheels that require a newer glibc, if any."""
    if not refused.glibc:
        return ()
    if refused.question.lock_request.builds_here:
        return (
            f"Use a distribution or a container with glibc {refused.glibc} or newer",
        )
    note = f"instead of glibc {refused.question.target.glibc}, which the lock assumes"
    return (make_change("--glibc", refused.glibc, note=note),)
