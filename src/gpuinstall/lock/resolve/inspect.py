"""Find facts that METADATA omits in the wheels of an answer.

Certain results become facts for the next run of uv, and uncertain results become
warnings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing

from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.location import SourceKind
from gpuinstall.base.requirement import Constraint, Requirement, requirement_names
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import COMPANIONS, PAIRED, Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.request.lock_sources import find_extension
from gpuinstall.lock.resolve.extensions import choose_prebuilt
from gpuinstall.lock.resolve.facts import (
    Answer,
    Fact,
    Facts,
    create_wheel_fact,
)
from gpuinstall.lock.resolve.lane import Lane
from gpuinstall.lock.resolve.reading import WHEELS_AT_ONCE, Reading, open_scope
from gpuinstall.lock.resolve.scope import works_without
from gpuinstall.lock.uv.builds import find_build_tools, find_source_builds
from gpuinstall.plan.companions import Companions
from gpuinstall.wheels.compatibility import (
    Compatibility,
    assess_gpus,
    can_load_with,
    find_missing_code,
    needs_older_cuda,
)
from gpuinstall.wheels.learned.row import Depth, WheelRow
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import parse_name_cuda

REJECTIONS = 8
"""Number of rejections for one reason before skipping releases."""

ENOUGH = 3
"""Rejections for one reason after which unread releases are rejected."""

_UNREAD = "unread"


def inspect(answer: Answer, known: Facts, lane: Lane) -> Facts:
    """Return the known facts and those about the packages of an answer.

    Extension files and build tools are added only if nothing else is new.
    """
    grown = known | Facts.from_facts(_find_companion_facts(answer, lane))
    # Only torch's symbols result in facts, CUDA only in warnings.
    answered = {"torch"} if lane.question.builds[0].learned else PAIRED
    if not lane.question.requested <= answered:
        grown = _inspect_wheels(answer, grown, lane)
        grown |= Facts.from_facts(_find_source_facts(answer, lane))
    violated = tuple(_find_violated_constraints(answer, lane))
    grown |= Facts(torch_constraints=violated)
    grown |= Facts.from_facts(_exclude_prereleases(answer, grown, lane))
    grown |= Facts.from_facts(_exclude_other_extras(answer, grown, lane))
    grown |= Facts.from_facts(_exclude_placeholders(answer, lane))
    if grown.facts_for_uv == known.facts_for_uv:
        grown |= Facts(files=_find_prebuilt(answer, grown, lane))
    if grown.facts_for_uv == known.facts_for_uv:
        undeclared = lane.question.catalog.find_undeclared_packages(answer.versions)
        added = (*find_build_tools(answer.packages), *undeclared)
        grown |= Facts(requirements=tuple(map(Requirement.of, added)))
    return grown


def find_sdists(answer: Answer) -> list[str]:
    """Return the packages that have only an sdist on their index.

    Folders and repositories are omitted, because the user selected them.
    """
    builds = find_source_builds(answer.packages)
    return [build.package for build in builds if build.source.kind is SourceKind.SDIST]


# Companions of torch, such as torchvision.


def _find_companion_facts(answer: Answer, lane: Lane) -> Iterator[Fact]:
    """Yield the compatible builds of torch-family packages, as facts.

    Packages that are compatible with the selected build are omitted.
    """
    for wheel in answer.wheels:
        package = wheel.package
        if package == "torch" or answer.torch in _find_paired_builds(wheel, lane):
            continue
        for other in lane.find_wheels(package):
            # uv would select the version with another local label next.
            if other.version.public == wheel.version.public:
                yield _create_companion_fact(other, answer.torch, lane)


def _create_companion_fact(wheel: Wheel, torch: str, lane: Lane) -> Fact:
    """Return the builds of torch that are compatible with a companion."""
    package, version = wheel.package, str(wheel.version)
    paired = _find_paired_builds(wheel, lane)
    reasons = {
        label: f"{package} {version} is incompatible with torch {build.name}"
        for label, build in lane.builds.items()
        if label not in paired
    }
    why = reasons.get(torch, "")
    return Fact(package, version, why, reasons, paired, wheel=wheel)


def _find_paired_builds(wheel: Wheel, lane: Lane) -> frozenset[str]:
    """Return the builds of torch that the catalog pairs with a package."""
    # METADATA of torchaudio 2.11 does not require torch.
    if wheel.package not in {*COMPANIONS, *lane.pages.read_pages()}:
        return frozenset(lane.builds)
    companions = Companions((), lane.question.catalog)
    paired = set()
    for version, build in lane.builds.items():
        loading = None
        if (wheel.package, wheel.version.public) in companions.catalog.companions:
            required = Requirement.of(wheel.package)
            loading = companions.find_available_versions(build, required)
        is_paired = loading is None or wheel.version.public in loading
        others = {*lane.pages.backends} - {build.backend.tag}
        if is_paired and wheel.version.local not in others:
            paired.add(version)
    return frozenset(paired)


def _find_violated_constraints(
    answer: Answer, lane: Lane
) -> Iterator[tuple[Version, Constraint]]:
    """Yield constraints of torch that METADATA omits and uv violated."""
    torch = answer.build.torch
    for constraint in lane.question.catalog.constraints(torch):
        version = answer.versions.get(constraint.name)
        if version and not constraint.allows(version):
            yield torch, constraint


# Wheels.


def _inspect_wheels(answer: Answer, known: Facts, lane: Lane) -> Facts:
    """Inspect the wheels of an answer, and return all known facts."""
    reading = Reading(open_scope(answer, known, lane), known, lane)
    for found in reading.read_new_wheels():
        if not lane.question.has_no_gpu or found.reason(answer.torch):
            known |= _find_wheel_facts(found, replace(reading, known=known))
    return known | Facts(linked=reading.find_linked_dependencies())


def _find_wheel_facts(found: Compatibility, reading: Reading) -> Facts:
    """Return the facts of a wheel and, if rejected, of older releases."""
    scope, lane = reading.scope, reading.lane
    package, torch = found.wheel.package, scope.answer.torch
    fact = (
        _create_missing_code_fact(found, lane)
        or (scope.decides(found) and _create_unread_fact(found, reading))
        or create_wheel_fact(found, torch)
    )
    if fact is None:
        return Facts()
    older = OlderReleases(found, fact, reading)
    if fact.builds is not None and not scope.decides(found):
        return Facts.from_facts(_find_optional_facts(older))
    learned = Facts.from_facts([fact])
    if fact.excludes:
        pure = _find_pure_files(found, lane)
        if pure:
            return Facts(files={package: pure})
    elif not fact.rejects(torch) or _may_keep_release(package, reading):
        return learned
    elif package not in {
        *scope.requested,
        *reading.known.before_torch,
    } and _has_only_older_cuda(found, reading):
        return learned | Facts(before_torch=(package,))
    return Facts.from_facts(older.find_facts())


def _may_keep_release(package: str, reading: Reading) -> bool:
    """Return whether a release is kept if another torch runs with it.

    uv selects another torch, unless other packages require this one.
    """
    torch = reading.scope.answer.torch
    facts = reading.known.find_package_facts(package)
    rejections = sum(one.rejects(torch) for one in facts)
    return package in reading.scope.requested and rejections < ENOUGH - 1


def _has_only_older_cuda(found: Compatibility, reading: Reading) -> bool:
    """Return whether a wheel is rejected only for its older CUDA."""
    torch = reading.scope.answer.torch
    build, row = reading.lane.builds[torch], found.verdicts[torch].row
    loads = can_load_with(row.torch, build) is not False
    return loads and needs_older_cuda(row, build)


def _create_missing_code_fact(found: Compatibility, lane: Lane) -> Fact | None:
    """Return the fact that a release lacks the code of a newer release."""
    wheel = found.wheel
    compiled = find_compiled_release(found, lane)
    if not compiled or compiled <= wheel.version:
        return None
    why = find_missing_code(found, compiled)
    if why is None:
        return None
    newer = lane.find_releases(wheel.package)[compiled]
    message = f"{wheel.package} {wheel.version} {why.message}"
    for limit in lane.read_metadata_requirements(newer):
        if limit.name == "torch":
            message += f", which requires {limit.text}"
    return Fact.excluding(wheel, message, why.code)


def _create_unread_fact(found: Compatibility, reading: Reading) -> Fact | None:
    """Return the fact that excludes a release that was not inspected, if any.

    It is excluded once the code of three releases does not run.
    """
    codes = [
        fact.code
        for fact in reading.known.find_package_facts(found.wheel.package)
        if fact.is_about_code
    ]
    if len(codes) < ENOUGH or not reading.is_unread(found):
        return None
    return _create_skipped_fact(found.wheel, "it was not inspected", codes[0])


def _find_pure_files(rejected: Compatibility, lane: Lane) -> tuple[Wheel, ...]:
    """Return files without native wheels that a pure wheel can replace.

    If a version has both, uv would select the native wheel.
    """
    wheel = rejected.wheel
    files = lane.find_wheels(wheel.package)
    pure = {one for one in files if one.version == wheel.version and one.is_pure}
    if wheel.filename in {"", *(one.filename for one in pure)} or not pure:
        return ()
    return tuple(one for one in files if one.version != wheel.version or one in pure)


def _find_optional_facts(older: OlderReleases) -> list[Fact]:
    """Return facts for another build or release of an optional package.

    No version of torch is excluded.
    """
    fact, scope, builds = older.fact, older.reading.scope, older.reading.lane.builds
    if not (fact.rejects(scope.answer.torch) and scope.is_for_gpus(fact.package)):
        return []
    running = fact.builds or frozenset()
    known = older.reading.known
    served = {
        builds[label].torch
        for label in running
        if not known.rejects(scope.answer.versions, label)
    }
    is_optional = works_without(older.rejected)
    if is_optional or scope.answer.build.torch not in served:
        return older.find_facts(is_optional=True)
    others = {label for label in builds if builds[label].torch not in served}
    return [replace(fact, builds=running | others)]


# Releases that uv should not select.


def _find_source_facts(answer: Answer, lane: Lane) -> Iterator[Fact]:
    """Yield facts about sdists whose CUDA does not support the GPUs."""
    build = lane.question.builds[0]
    for package in find_sdists(answer):
        for version in lane.find_source_versions(package):
            cuda = parse_name_cuda(package)
            row = WheelRow(
                package=package,
                version=version,
                backend=build.backend.tag,
                platform=f"{build.os}-{build.arch}",
                cuda=f"{cuda}.0" if cuda else None,
            )
            why = assess_gpus(row, lane.question.gpus).rejection
            if why:
                message = f"{package} {version} {why.message}"
                yield Fact(package, version, message, builds=frozenset())


def _exclude_prereleases(answer: Answer, known: Facts, lane: Lane) -> Iterator[Fact]:
    """Exclude pre-releases that uv selects if facts limit final releases.

    A fact may be about the package itself or about requirements of its latest release.
    """
    limited = {fact.package for fact in known.facts.values() if fact.builds is not None}
    for package, version in answer.versions.items():
        if not limited or not Version(version).is_prerelease:
            continue
        limits = lane.question.find_limits(package)
        if any(one.specifier and one.specifier.prereleases for one in limits):
            continue
        newest = next(iter(lane.find_releases(package).values()), None)
        if newest is None:
            continue
        required = requirement_names(lane.read_metadata_requirements(newest))
        if limited.isdisjoint({package, *required}):
            continue
        versions = {str(one.version) for one in lane.find_wheels(package)}
        for other in {version, *versions}:
            if Version(other).is_prerelease:
                yield Fact(package, other, builds=frozenset())


def _exclude_other_extras(answer: Answer, known: Facts, lane: Lane) -> Iterator[Fact]:
    """Exclude releases without a requested extra if facts exclude others."""
    newest = lane.newest_releases() if known.facts else {}
    for package, version, extra in answer.missing_extras:
        latest = newest.get(package)
        if not latest or parse_public_version(version) >= latest:
            continue
        for older, wheel in lane.find_releases(package).items():
            if older <= Version(version):
                why = f"{package} {older} has no extra {extra}"
                yield Fact.excluding(wheel, why)


def _exclude_placeholders(answer: Answer, lane: Lane) -> Iterator[Fact]:
    """Exclude releases without requirements if the latest requires torch.

    protenix 0.0.1 contains no program.
    """
    for package, latest in lane.newest_releases().items():
        wheels = [one for one in answer.wheels if one.package == package]
        is_kept = package in lane.question.preferences
        if is_kept or not latest or not wheels or not wheels[0].is_pure:
            continue
        wheel, newest = wheels[0], lane.find_releases(package).get(latest)
        older, newer = map(lane.read_metadata_requirements, (wheel, newest))
        if not older and "torch" in requirement_names(newer):
            yield Fact.excluding(wheel)


def _find_prebuilt(
    answer: Answer, known: Facts, lane: Lane
) -> dict[str, tuple[Wheel, ...]]:
    """Return prebuilt files of extensions that would be compiled."""
    question = lane.question.with_builds([answer.build])
    files = dict[str, tuple[Wheel, ...]]()
    for name in sorted(load_extensions().rows.keys() & find_sdists(answer)):
        row = find_extension(name, lane.session.sources.addresses)
        fit = choose_prebuilt(row, question, Requirement.of(name), lane.session).fit
        if fit and name not in known.files and name not in question.files:
            files[name] = (fit.wheel,)
    return files


# Older releases: tried one by one. After eight rejections for one reason, each further
# rejection doubles the stride, and the releases skipped before the first one that runs
# are bisected.


class OlderReleases:
    """The older releases of a rejected package, tried one by one."""

    def __init__(self, rejected: Compatibility, fact: Fact, reading: Reading) -> None:
        self.rejected, self.fact, self.reading = rejected, fact, reading
        self.torch = reading.scope.answer.torch
        # A decisive package that runs with no torch may be older with any torch.
        self.builds = frozenset([self.torch])
        is_decisive = reading.scope.is_decisive(fact.package)
        if fact.excludes and is_decisive and not works_without(rejected):
            self.builds = frozenset(reading.lane.builds)
        self.compiled = find_compiled_release(rejected, reading.lane)
        self.deepest = reading.max_depth(rejected.wheel)
        known = [*reading.known.find_package_facts(fact.package), fact]
        self.is_about_code = any(one.is_about_code for one in known)
        """Whether the GPU code of a release excludes it."""
        self.causes = Counter(one.code for one in known if one.code)
        if not fact.code:
            self.causes[self._find_code(rejected)] += 1

    def find_facts(self, *, is_optional: bool = False) -> list[Fact]:
        """Return facts about older releases, down to the first that runs.

        Args:
            is_optional: Whether only a release that runs, and that all requirements
                allow, may replace the rejected one.
        """
        facts: dict[Wheel, Fact | None] = {}
        last, following, stride, runs = -1, 0, 1, False
        wheels = self._find_candidates(is_optional=is_optional)
        for place, wheel in enumerate(wheels):
            if place < following:
                facts[wheel] = self._skip(wheel)
                continue
            fact, cause = self._inspect(wheel)
            facts[wheel] = fact
            self.is_about_code |= fact is not None and fact.is_about_code
            runs = not cause
            if runs:
                self._try_skipped(wheels[last + 1 : place], facts)
                break
            last = place
            self.causes[cause] += 1
            if self.causes[cause] >= REJECTIONS:
                stride *= 2
            # The oldest release is always tried.
            rest = (len(wheels) - place) // 2
            following = place + max(1, min(stride, rest))
        if is_optional and not runs:
            return []
        del self.causes[_UNREAD]
        # Otherwise, uv selects the latest release that no fact excludes.
        is_complete = runs or max(self.causes.values()) >= ENOUGH
        found = filter(None, [self.fact, *facts.values()])
        return [one for one in found if is_complete or not one.unread]

    def _try_skipped(
        self, skipped: Sequence[Wheel], facts: dict[Wheel, Fact | None]
    ) -> None:
        """Bisect the releases that were skipped before one that runs."""
        while skipped:
            middle = len(skipped) // 2
            wheel = skipped[middle]
            facts[wheel], cause = self._inspect(wheel)
            skipped = skipped[middle + 1 :] if cause else skipped[:middle]

    def _skip(self, wheel: Wheel) -> Fact:
        """Return the fact that a release was not tried."""
        fact = _create_skipped_fact(wheel, "several newer ones do not run")
        return replace(fact, builds=self.fact.builds)

    def _find_candidates(self, *, is_optional: bool) -> list[Wheel]:
        """Return the older releases that requirements allow, latest first.

        METADATA must also allow a relevant build of torch.
        """
        wheel, lane = self.rejected.wheel, self.reading.lane
        releases = lane.find_releases(wheel.package).items()
        older = [one for version, one in releases if version < wheel.version]
        scope = self.reading.scope
        demands = scope.log.find_demands(wheel.package, scope.answer.versions)
        allowed = [
            one for one in older if all(limit.allows(one.version) for limit in demands)
        ]
        # If none is allowed, uv selects other versions of the packages that require it.
        if allowed or is_optional:
            older = allowed
        if not self.rejected.row.requires_torch:
            return older
        builds = map_concurrently(lane.find_allowed_builds, older, WHEELS_AT_ONCE)
        return [
            one
            for one, allows in zip(older, builds, strict=True)
            if allows & self.builds
        ]

    def _inspect(self, wheel: Wheel) -> tuple[Fact | None, str]:
        """Return a release's fact and why it is rejected, or "" if it runs."""
        try:
            found = self._read(wheel)
        except InstallationError as error:
            return _create_skipped_fact(wheel, error.message), _UNREAD
        fact = create_wheel_fact(found, self.torch)
        if not found.runs_with(self.builds):
            return fact, self._find_code(found)
        if self.deepest is Depth.METADATA:
            return fact, ""
        why = find_missing_code(found, self.compiled)
        if why:
            skipped = _create_skipped_fact(wheel, f"it {why.message}", why.code)
            return skipped, why.code
        row, _, warning = found.verdicts[self.torch]
        is_stated = row.package in load_members().stated
        # If no code excludes a release, a kernel decides after the limit.
        is_decided_later = row.depth == Depth.TABLES and not self.is_about_code
        is_known = is_stated or is_decided_later or row.codes or found.is_settled
        is_whole = row.is_whole and row.depth > Depth.METADATA
        if not is_whole and (warning or not is_known):
            skipped = _create_skipped_fact(wheel, "it was inspected only in part")
            code = warning.code if warning and self.causes[warning.code] else ""
            return replace(skipped, code=code), code or _UNREAD
        return fact, ""

    def _read(self, wheel: Wheel) -> Compatibility:
        """Read a wheel until it is certain enough whether it runs."""
        reader = self.reading.lane.reader
        deepest = min(self.deepest, reader.deepest)
        with closing(self.reading.read(wheel, deepest, self.builds)) as steps:
            for found in steps:
                if found.row.depth == Depth.PART and (
                    self._lacks_code(found) or not reader.may_read_rest(found.row)
                ):
                    break
        return found

    def _lacks_code(self, found: Compatibility) -> bool:
        """Return whether a part of a wheel lacks code like a newer release."""
        why = found.verdicts[self.torch].warning
        return why is not None and self.causes[why.code] > 0

    def _find_code(self, found: Compatibility) -> str:
        """Return the code of the reason for which a wheel is rejected."""
        reason = found.reason(self.torch)
        return reason.code if reason else "metadata"


def find_compiled_release(found: Compatibility, lane: Lane) -> Version | None:
    """Return the release with compiled code that others must have, too.

    If METADATA excludes the compiled releases, uv selects one without libraries. A
    program that was compiled before and after this release was not pure.
    """
    wheel = found.wheel
    if found.row.system or not wheel.is_pure:
        return wheel.version
    releases = lane.find_releases(wheel.package).items()
    compiled = [version for version, one in releases if not one.is_pure]
    if not compiled or wheel.version > compiled[0]:
        return None
    # nvidia-cupynumeric-cu12 0.0.0 contains and requires nothing.
    is_pure = found.row.requires and wheel.version < compiled[-1]
    return None if is_pure else compiled[0]


def _create_skipped_fact(wheel: Wheel, why: str, code: str = "") -> Fact:
    """Return the fact that excludes a skipped release.

    Without a reason code, the fact marks the release as not inspected.
    """
    message = f"{wheel.package} {wheel.version} was skipped: {why}"
    return replace(Fact.excluding(wheel, message, code), unread="" if code else why)
