"""Collect facts about packages in a resolution for the next run of uv.

If a package is rejected, its older releases are tried one by one. After eight rejections
for one reason, each further rejection doubles the stride, and the first release that runs
is selected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import Constraint, Requirement, requirement_names
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.request.lock_sources import find_extension
from gpuinstall.lock.resolve.extensions import choose_prebuilt
from gpuinstall.lock.resolve.inspect import (
    WHEELS_AT_ONCE,
    ResolutionInspector,
    create_wheel_fact,
    find_sdists,
)
from gpuinstall.lock.resolve.knowledge import Fact, Knowledge, UvResolution
from gpuinstall.lock.resolve.package_index import PackageIndex
from gpuinstall.lock.uv.builds import find_build_tools
from gpuinstall.wheels.compatibility import (
    TEST_IT,
    Compatibility,
    find_missing_code,
)
from gpuinstall.wheels.learned.row import Depth
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import library_stem

REJECTIONS = 8
"""Number of rejections for one reason before skipping releases."""

ENOUGH = 3
"""Rejections for one reason after which unread releases are rejected."""

_UNREAD = "unread"


def collect_facts(
    resolution: UvResolution, known: Knowledge, inspector: ResolutionInspector
) -> Knowledge:
    """Return the known facts and those about the packages in a resolution.

    Extension files and build tools are added only if nothing else is new.
    """
    companions = inspector.find_companion_facts(resolution)
    grown = known | Knowledge.from_facts(companions)
    if not inspector.is_idle:
        grown = _inspect_wheels(resolution, grown, inspector)
        grown |= Knowledge.from_facts(inspector.find_source_facts(resolution))
    grown |= Knowledge(
        torch_constraints=tuple(_find_violated_constraints(resolution, inspector))
    )
    grown |= Knowledge.from_facts(_exclude_prereleases(resolution, grown, inspector))
    grown |= Knowledge.from_facts(_exclude_other_extras(resolution, grown, inspector))
    if grown.facts_for_uv == known.facts_for_uv:
        grown |= Knowledge(files=_find_prebuilt(resolution, grown, inspector))
    if grown.facts_for_uv == known.facts_for_uv:
        undeclared = inspector.resolver_input.catalog.find_undeclared_packages(
            resolution.versions
        )
        added = map(
            Requirement.of, (*find_build_tools(resolution.packages), *undeclared)
        )
        grown |= Knowledge(requirements=tuple(added))
    return grown


def _inspect_wheels(
    resolution: UvResolution, known: Knowledge, inspector: ResolutionInspector
) -> Knowledge:
    """Inspect the wheels of a resolution, and return all known facts."""
    for found in inspector.inspect(resolution, known):
        if not inspector.has_no_gpu or found.reason(resolution.torch):
            known |= _find_wheel_facts(found, resolution, known, inspector)
    return known | Knowledge(linked=inspector.find_linked_dependencies(resolution))


def _find_wheel_facts(
    found: Compatibility,
    resolution: UvResolution,
    known: Knowledge,
    inspector: ResolutionInspector,
) -> Knowledge:
    """Return the facts of a wheel and, if rejected, of older releases."""
    package = found.wheel.package
    fact = create_wheel_fact(found, resolution.torch)
    compiled = inspector.find_compiled_release(found)
    if compiled and compiled > found.wheel.version:
        fact = _create_missing_code_fact(found, compiled, inspector.index) or fact
    if fact is None:
        return Knowledge()
    if fact.excludes:
        releases = [*inspector.index.find_releases(package)]
        fact = replace(fact, is_newest=releases[:1] == [found.wheel.version])
    older = OlderReleases(found, fact, inspector, resolution, known)
    if fact.builds is not None and not inspector.decides(found, resolution):
        return Knowledge.from_facts(_find_optional_facts(older))
    learned = Knowledge.from_facts([fact])
    is_dependency = package not in inspector.requested
    rejections = sum(
        one.rejects(resolution.torch) for one in known.find_package_facts(package)
    )
    if fact.excludes:
        pure = inspector.find_pure_files(found)
        if pure:
            return Knowledge(files={package: pure})
    # Keep a requested package at its latest release if another torch runs with it. uv
    # selects another torch, unless other packages require this one.
    elif not fact.rejects(resolution.torch) or (
        not is_dependency and rejections < ENOUGH - 1
    ):
        return learned
    elif (
        is_dependency
        and package not in known.before_torch
        and inspector.has_only_older_cuda(found, resolution)
    ):
        return learned | Knowledge(before_torch=(package,))
    return Knowledge.from_facts(older.find_facts())


def _find_optional_facts(older: OlderReleases) -> list[Fact]:
    """Return facts for another build or release of an optional package.

    No version of torch is excluded.
    """
    fact, resolution, inspector = older.fact, older.resolution, older.inspector
    if not (
        fact.rejects(resolution.torch)
        and inspector.is_for_gpus(fact.package, resolution)
    ):
        return []
    builds = inspector.index.builds()
    running = fact.builds or frozenset()
    served = {
        builds[label].torch
        for label in running
        if not older.known.rejects(resolution.versions, label)
    }
    is_optional = inspector.works_without(older.rejected)
    if is_optional or resolution.build.torch not in served:
        return older.find_facts(is_optional=True)
    others = {label for label in builds if builds[label].torch not in served}
    return [replace(fact, builds=running | others)]


def _find_violated_constraints(
    resolution: UvResolution, inspector: ResolutionInspector
) -> Iterator[tuple[Version, Constraint]]:
    """Yield constraints of torch that METADATA omits and uv violated."""
    torch = resolution.build.torch
    for constraint in inspector.resolver_input.catalog.constraints(torch):
        version = resolution.versions.get(constraint.name)
        if version and not constraint.allows(version):
            yield torch, constraint


def _exclude_prereleases(
    resolution: UvResolution, known: Knowledge, inspector: ResolutionInspector
) -> Iterator[Fact]:
    """Exclude pre-releases that uv selects if facts limit final releases.

    A fact may be about the package itself or about requirements of its latest release.
    """
    index = inspector.index
    limited = {fact.package for fact in known.facts.values() if fact.builds is not None}
    for package, version in resolution.versions.items():
        if not limited or not Version(version).is_prerelease:
            continue
        limits = inspector.resolver_input.find_limits(package)
        if any(one.specifier and one.specifier.prereleases for one in limits):
            continue
        newest = next(iter(index.find_releases(package).values()), None)
        if newest is None:
            continue
        required = requirement_names(index.read_metadata_requirements(newest))
        if limited.isdisjoint({package, *required}):
            continue
        versions = {str(one.version) for one in index.find_wheels(package)}
        for other in {version, *versions}:
            if Version(other).is_prerelease:
                yield Fact(package, other, builds=frozenset())


def _exclude_other_extras(
    resolution: UvResolution, known: Knowledge, inspector: ResolutionInspector
) -> Iterator[Fact]:
    """Exclude releases without a requested extra if facts exclude others."""
    index = inspector.index
    newest = index.newest_releases() if known.facts else {}
    for package, version, extra in resolution.missing_extras:
        latest = newest.get(package)
        if not latest or parse_public_version(version) >= latest:
            continue
        for older, wheel in index.find_releases(package).items():
            if older <= Version(version):
                why = f"{package} {older} has no extra {extra}"
                yield Fact(package, str(older), why, builds=frozenset(), wheel=wheel)


def _find_prebuilt(
    resolution: UvResolution, known: Knowledge, inspector: ResolutionInspector
) -> dict[str, tuple[Wheel, ...]]:
    """Return prebuilt files of extensions that would be compiled."""
    resolver_input = inspector.resolver_input
    beside = resolver_input.with_builds([resolution.build])
    files = dict[str, tuple[Wheel, ...]]()
    for name in sorted(load_extensions().rows.keys() & find_sdists(resolution)):
        row = find_extension(name, inspector.index.session)
        fit = choose_prebuilt(
            row, beside, inspector.index.session, Requirement.of(name)
        ).fit
        if fit and name not in known.files and name not in resolver_input.files:
            files[name] = (fit.wheel,)
    return files


class OlderReleases:
    """The older releases of a rejected package, tried one by one."""

    def __init__(
        self,
        rejected: Compatibility,
        fact: Fact,
        inspector: ResolutionInspector,
        resolution: UvResolution,
        known: Knowledge,
    ) -> None:
        self.rejected, self.fact, self.inspector = rejected, fact, inspector
        self.resolution, self.known = resolution, known
        # A package of the request or an extra that no torch runs may run with any torch.
        self.builds = frozenset([resolution.torch])
        is_named = fact.package in inspector.requested
        if fact.excludes and is_named and not inspector.works_without(rejected):
            self.builds = frozenset(inspector.index.builds())
        self.compiled = inspector.find_compiled_release(rejected)
        self.deepest = inspector.max_depth(rejected.wheel, resolution)
        self.causes = Counter([fact.code or _find_rejection_code(rejected, resolution)])

    def find_facts(self, *, is_optional: bool = False) -> list[Fact]:
        """Return facts about older releases, down to the first that runs.

        Args:
            is_optional: Whether only a release that runs, and that all requirements
                allow, may replace the rejected one.
        """
        facts, runs = [self.fact], False
        following, stride = 0, 1
        wheels = self._find_candidates(is_optional=is_optional)
        for place, wheel in enumerate(wheels):
            if place < following or self._is_limit_reached:
                facts.append(self._skip(wheel))
                continue
            fact, cause = self._inspect(wheel)
            facts += [fact] if fact else []
            runs = not cause
            if runs:
                break
            self.causes[cause] += 1
            if self.causes[cause] >= REJECTIONS and cause != _UNREAD:
                stride *= 2
            # The oldest release is always tried.
            rest = (len(wheels) - place) // 2
            following = place + max(1, min(stride, rest))
        if is_optional and not runs:
            return []
        del self.causes[_UNREAD]
        # Otherwise, uv selects the latest release that no fact excludes.
        is_complete = runs or max(self.causes.values()) >= ENOUGH
        return [one for one in facts if is_complete or not one.unread]

    @property
    def _is_limit_reached(self) -> bool:
        reader = self.inspector.index.reader
        return reader.is_limit_reached and self.deepest > Depth.METADATA

    def _skip(self, wheel: Wheel) -> Fact:
        """Return the fact that a release was not tried."""
        fact = _create_skipped_fact(wheel, "newer releases do not run")
        return replace(fact, builds=self.fact.builds, wheel=wheel)

    def _find_candidates(self, *, is_optional: bool) -> list[Wheel]:
        """Return the older releases that requirements allow, latest first.

        METADATA must also allow a relevant build of torch.
        """
        wheel, index = self.rejected.wheel, self.inspector.index
        releases = index.find_releases(wheel.package).items()
        older = [one for version, one in releases if version < wheel.version]
        demands = index.log.find_demands(wheel.package, self.resolution.versions)
        allowed = [
            one for one in older if all(limit.allows(one.version) for limit in demands)
        ]
        # If none is allowed, uv selects other versions of the packages that require it.
        if allowed or is_optional:
            older = allowed
        if not any(one.name == "torch" for one in self.rejected.row.requirements()):
            return older
        builds = map_concurrently(
            self.inspector.find_allowed_builds, older, WHEELS_AT_ONCE
        )
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
        fact = create_wheel_fact(found, self.resolution.torch)
        if not found.runs_with(self.builds):
            return fact, _find_rejection_code(found, self.resolution)
        if self.deepest is Depth.METADATA:
            return fact, ""
        why = self._find_same_lack(found) or find_missing_code(found, self.compiled)
        if why:
            skipped = f"it {why.message.removesuffix(TEST_IT)}"
            return _create_skipped_fact(wheel, skipped, code=why.code), why.code
        for row, _, warning in found.verdicts.values():
            # The catalog has facts about some packages that their files lack.
            is_known = row.codes or row.package in load_members().stated
            is_known = is_known or found.is_settled
            if not row.is_whole and (warning or not is_known):
                why_unread = "it was inspected only in part"
                return _create_skipped_fact(wheel, why_unread), _UNREAD
        return fact, ""

    def _read(self, wheel: Wheel) -> Compatibility:
        """Read a wheel until it is certain enough whether it runs."""
        steps = self.inspector.read(
            wheel, self.resolution, self.known, self.deepest, self.builds
        )
        may_read_rest = self.inspector.index.reader.may_read_rest
        with closing(steps):
            for found in steps:
                if found.row.depth == Depth.PART and (
                    self._find_same_lack(found) or not may_read_rest(found.row)
                ):
                    break
        return found

    def _find_same_lack(self, found: Compatibility) -> Reason | None:
        """Return the reason if a wheel lacks code like a newer release.

        A part of the same libraries without code is enough to reject another release.
        """
        why = found.verdicts[self.resolution.torch].warning
        libraries = {library_stem(code.library) for code in self.rejected.row.codes}
        own = {library_stem(code.library) for code in found.row.codes}
        return why if why and own <= libraries and self.causes[why.code] else None


def _find_rejection_code(found: Compatibility, resolution: UvResolution) -> str:
    """Return the code of the reason for which a wheel is rejected."""
    reason = found.reason(resolution.torch)
    return reason.code if reason else "metadata"


def _create_missing_code_fact(
    found: Compatibility, compiled: Version, index: PackageIndex
) -> Fact | None:
    """Return the fact that a release lacks the code of a newer release."""
    why = find_missing_code(found, compiled)
    if why is None:
        return None
    wheel = found.wheel
    package, version = wheel.package, str(wheel.version)
    newer = index.find_releases(package)[compiled]
    message = f"{package} {version} {why.message}"
    for limit in index.read_metadata_requirements(newer):
        if limit.name == "torch":
            message += f", which requires {limit.text}"
    return Fact(
        package, version, message, builds=frozenset(), wheel=wheel, code=why.code
    )


def _create_skipped_fact(wheel: Wheel, why: str, code: str = "") -> Fact:
    """Return the fact that excludes a skipped release.

    Without a reason code, the fact marks the release as not inspected.
    """
    version = str(wheel.version)
    return Fact(
        wheel.package,
        version,
        f"{wheel.package} {version} was skipped: {why}",
        builds=frozenset(),
        unread="" if code else why,
        code=code,
    )
