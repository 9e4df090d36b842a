"""Explain why packages in a resolution are not newer, and list warnings.

Explanations are derived from facts and METADATA. uv's explanation is only quoted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache

from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import Requirement, requirement_names
from gpuinstall.base.text import join_names, shorten
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import COMPANIONS, Wheel
from gpuinstall.lock.file.lock import list_versions
from gpuinstall.lock.file.target import find_required_glibc
from gpuinstall.lock.resolve.inspect import WHEELS_AT_ONCE, find_sdists
from gpuinstall.lock.resolve.knowledge import Fact
from gpuinstall.lock.resolve.resolver import ResolvedInput, Resolver
from gpuinstall.lock.resolve.resolver_input import (
    list_torch_versions,
)
from gpuinstall.lock.resolve.run_uv import is_library_of_torch, run_uv_without_facts
from gpuinstall.lock.uv.edges import OWN_PACKAGES
from gpuinstall.lock.uv.errors import Conflict
from gpuinstall.plan.values import PROGRAM_HELD_BACK, ProgramConstraints
from gpuinstall.wheels.compatibility import (
    SHARED_FILES,
    Compatibility,
    find_missing_libraries,
)
from gpuinstall.wheels.learned.row import WheelRow
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import (
    is_for_cuda,
    is_from_package,
    rename_for_cuda,
)
from gpuinstall.wheels.package import remove_cuda_label

NO_CODE = "no-code-in-package"
TORCH_ADDED = "torch-added"
"""The error code if only the torch that gpuinstall adds causes a conflict."""
MAY_NOT_RUN = "part-without-code"
"""The code of a warning that excludes no release."""
ASSUMED_GLIBC = "assumed-glibc"
"""The code of a warning that the assumed glibc excludes a release."""

_OLD_DRIVER = "driver-too-old"
_WITHOUT_GPU = "no-gpu"
_WITHOUT_LIBRARY = "library-missing"

MAX_LISTED = 3
"""Maximum number of sentences that a message lists."""

_PREAMBLE = "No solution found when resolving dependencies; "


class Obstacle(Value):
    """The reason why a newer version of a package was not selected."""

    why: str = ""

    limited_by: str = ""
    """The packages or constraints that exclude the newer version, if known."""

    code: str = PROGRAM_HELD_BACK
    """The code of the warning or reason to report."""


class ObstacleKind(IntEnum):
    """The kinds of obstacles, in the order in which they are reported."""

    REQUESTED = 0
    DEPENDENCY = 1
    FACT = 2
    COMPANION = 3


class ResolutionExplanation:
    """The reasons and warnings for one resolution."""

    def __init__(self, resolved: ResolvedInput, resolver: Resolver) -> None:
        self._resolver_input = resolver.resolver_input
        self._resolution = resolved.resolution
        self._known = resolved.known
        self._accounts = resolved.accounts
        self._resolver = resolver
        self._index = resolver.index
        self._versions = resolved.resolution.versions
        self._facts_here = [*self._known.find_facts(self._versions)]
        # The first call reads index pages.
        self._older_releases = cache(lambda: [*self._find_older_releases()])
        self._without_torch = cache(self._find_versions_without_torch)

    def constraints(self) -> ProgramConstraints:
        """Return the constraints of requested packages on torch."""
        chosen = self._resolution.build
        unserved = {}
        for version, build in self._index.builds().items():
            if build == chosen:
                break
            if build.torch == chosen.torch:
                conflict = "the other packages require a different build"
                fact = self._find_rejecting_fact([version])
                unserved[build.backend.tag] = fact.why if fact else conflict
        obstacle, without = self._find_torch_obstacle()
        return ProgramConstraints(
            chosen,
            obstacle.why,
            without,
            unserved,
            self.explain_older_releases(),
            obstacle.limited_by,
        )

    # Torch.

    def _find_torch_obstacle(self) -> tuple[Obstacle, Version]:
        """Return the obstacle to a newer torch version, and that version."""
        resolver_input = self._resolver_input
        torch = self._resolution.build.torch
        runnable = list_torch_versions(resolver_input.lock_request)
        newer = [one for one in runnable if one > torch]
        if not newer:
            return Obstacle(), torch
        if torch == resolver_input.common:
            newest = f"torch {torch} is the newest that all targets support"
            return Obstacle(resolver_input.common_limit or newest), newer[0]
        obstacles = {one: self._find_obstacle("torch", one) for one in newer}
        following = obstacles[newer[-1]]
        # A reason that excludes only the latest version is not decisive.
        same = [
            one for one in newer if obstacles[one].limited_by == following.limited_by
        ]
        if not following.why and self._is_kept("torch"):
            return Obstacle("", f"the locked torch {torch}"), same[0]
        return obstacles[same[0]], same[0]

    def _is_kept(self, package: str) -> bool:
        """Return whether the resolution kept a package's locked version."""
        kept = self._resolver_input.alternative.preferences.get(package, "")
        return kept.partition("+")[0] == self._versions[package].partition("+")[0]

    def _find_rejecting_fact(self, torches: Sequence[str]) -> Fact | None:
        """Return a fact that rejects all of these builds, if any."""
        facts = self._facts_here
        return next((one for one in facts if all(map(one.rejects, torches))), None)

    # Older releases.

    def explain_older_releases(self) -> tuple[str, ...]:
        """Return requested packages below their latest release, with a cause.

        A package that facts, an assumed glibc, or an added torch excludes has a warning.
        """
        older = self._older_releases()
        return tuple(one.message for one in older if one.code == PROGRAM_HELD_BACK)

    def _find_older_releases(self) -> Iterator[Reason]:
        reported = self._find_newer_facts()
        moving = self._resolver_input.alternative.moving
        newest_releases = {**self._index.newest_releases()}
        for package in moving.keys() - self._index.names():
            releases = self._index.find_releases(package)
            newest_releases.setdefault(package, next(iter(releases), None))
        # The message about a relaxed torch version also lists its companions.
        if not self._resolver_input.lock_request.request.relax:
            newest_releases |= self._index.find_newest_companions(
                self._resolution.build
            )
        others = find_sdists(self._resolution)
        is_latest = self._index.session.sources.selects_latest
        if is_latest and self._resolver_input.lock_request.is_glibc_assumed:
            inspected = self._resolver.inspector.inspected.values()
            others += [one.wheel.package for one in inspected if one.row.depth]
        known = {name: one for name, one in newest_releases.items() if one}
        for package, newest in (dict.fromkeys(others) | known).items():
            version = self._versions.get(package, "").partition("+")[0]
            if not version or package in reported:
                continue
            selected = Version(version)
            demands = self._index.find_demands(package, self._versions)
            wheel = self._index.find_wheel_for_newer_glibc(package, selected, demands)
            limit = wheel and self._explain_newer_wheel(wheel, newest or selected)
            if wheel and limit:
                subject = f"{package} is {version} instead of {wheel.version}, which"
                if wheel.version == selected:
                    subject = f"{package} {version} is built from source: its wheel"
                yield Reason(limit.code, f"{subject} requires {limit.message}")
            elif newest and newest > selected:
                yield self._explain_older_release(package, selected, newest)
            elif moving.get(package) == self._versions[package]:
                limits = [
                    one for one in self._index.find_limits(package) if one.specifier
                ]
                allowed = join_names([*map(format_limit, limits)])
                sentence = f"{package} {version} is the latest version"
                sentence += f" for {allowed}" if allowed else ""
                yield Reason(PROGRAM_HELD_BACK, sentence)

    def _find_versions_without_torch(self) -> Mapping[str, str]:
        """Return the versions without torch, if only torch may limit them."""
        is_limited = any(one.excludes for one in self._known.facts.values())
        if is_limited or self._index.find_demands("torch", self._versions):
            return {}
        return find_versions_without_torch(self._resolver)

    def _explain_older_release(
        self, package: str, selected: Version, newest: Version
    ) -> Reason:
        """Return the reason why a package is not at its latest release."""
        obstacle = self._find_obstacle(package, newest)
        code, why = obstacle.code, obstacle.why
        sentence = f"{package} is {selected} instead of {newest}"
        torch = self._resolution.build.torch
        if parse_public_version(self._without_torch().get(package, "0")) > selected:
            code = TORCH_ADDED
            sentence += f" only because gpuinstall adds torch {torch}"
        account = self._accounts.get(package, "")
        if not why and account and OWN_PACKAGES not in account:
            why = shorten_explanation(account)
        elif not why and package in self._index.names():
            why = f"it is the version for torch {torch}"
        elif not why and self._is_kept(package):
            why = "it is locked"
        return Reason(code, f"{sentence}: {why}" if why else sentence)

    def _explain_newer_wheel(self, wheel: Wheel, newest: Version) -> Reason | None:
        """Return what an incompatible wheel requires, torch or a newer glibc.

        A torch version that does not run is explained with the newest release, if that
        is a later one.
        """
        for one in self._index.read_metadata_requirements(wheel):
            if one.name == "torch" and not any(
                map(one.allows, self._resolver_input.torches)
            ):
                if newest > wheel.version:
                    return None
                return Reason(PROGRAM_HELD_BACK, remove_marker(one).text)
        glibc = find_required_glibc([(wheel.package, wheel.filename)], least="2.5")
        lock_request = self._resolver_input.lock_request
        code = PROGRAM_HELD_BACK
        limit = f"this system has glibc {lock_request.machine.glibc}"
        if lock_request.is_glibc_assumed:
            code = ASSUMED_GLIBC
            limit = (
                f"the lock assumes glibc {self._resolver_input.target.glibc} "
                f"(--glibc {glibc} allows it)"
            )
        return Reason(code, f"glibc {glibc}; {limit}")

    def _find_obstacle(self, package: str, newest: Version) -> Obstacle:
        """Return the requirement, fact, or package that excludes a release."""
        return self._find_conflict(package, newest) or self._explain_unmet_requirement(
            package, newest
        )

    def _find_conflict(
        self, package: str, version: Version, dependent: str = ""
    ) -> Obstacle | None:
        """Return the selected packages or the fact that exclude a release.

        Requested packages are reported first, and torch-family packages last.

        Args:
            package: The package.
            version: Its release.
            dependent: A package that may change with it.
        """
        conflicts: dict[ObstacleKind, dict[str, str]] = defaultdict(dict)
        for limiting, release in self._versions.items():
            selected = Version(release)
            kind = self._find_kind(package, limiting, selected)
            if kind is None or limiting == dependent:
                continue
            for one in self._find_requirements(limiting, selected):
                if one.name == package and not one.allows(version):
                    sentence, first = self._format_demand(kind, limiting, one)
                    conflicts[kind][sentence] = first
        if package == "torch":
            builds = self._index.builds().items()
            labels = [label for label, build in builds if build.torch == version]
            fact = self._find_rejecting_fact(labels)
            if fact:
                found = fact.wheel and self._resolver.inspector.inspected.get(
                    fact.wheel
                )
                reason = found and found.reason(labels[0])
                why = (
                    f"{fact.package} {fact.version} {reason.message}"
                    if reason
                    else fact.why
                )
                conflicts[ObstacleKind.FACT][why] = fact.package
        if not conflicts:
            return None
        kind = min(conflicts)
        # A dependency is listed with the package that requires it.
        most = 1 if kind is ObstacleKind.DEPENDENCY else MAX_LISTED
        sentences = [*conflicts[kind]]
        why = join_names(sentences[:most])
        if sentences[most:]:
            why += f" and {len(sentences) - most} more"
        packages = dict.fromkeys(conflicts[kind].values())
        return Obstacle(why, join_names([*packages]))

    def _find_kind(
        self, package: str, limiting: str, selected: Version
    ) -> ObstacleKind | None:
        """Return the kind of obstacle that a selected release is.

        The torch version determines family packages, even locked ones. The result is
        None if the locked torch determines the release.
        """
        if package == "torch" and limiting in self._index.names():
            companions = self._index.find_newest_companions(self._resolution.build)
            is_newest = str(companions.get(limiting)) == selected.public
            if self._is_kept("torch") and not is_newest:
                return None
            return ObstacleKind.COMPANION
        if limiting in requirement_names(self._resolver_input.programs):
            return ObstacleKind.REQUESTED
        return ObstacleKind.DEPENDENCY

    def _format_demand(
        self, kind: ObstacleKind, limiting: str, demand: Requirement
    ) -> tuple[str, str]:
        """Return the sentence about a requirement, and the package to list."""
        text = remove_marker(demand).text
        if demand.is_exact:
            text = text.replace("==", " ")
        release = f"{limiting} {Version(self._versions[limiting]).public}"
        requirers = self._index.find_requirers(limiting, self._versions)
        if kind is not ObstacleKind.DEPENDENCY or not requirers:
            return f"{release} requires {text}", limiting
        return (
            f"{format_requirers(requirers, release)}, which requires {text}",
            requirers[0],
        )

    def _find_excluding_limits(self, demand: Requirement) -> str:
        """Return the limits that exclude all versions for a requirement."""
        request = self._resolver_input.lock_request.request
        limits = [
            one
            for one in (*request.requirements, *request.constraints)
            if one.name == demand.name
            and one.specifier
            and self._resolver_input.is_applicable(one)
        ]
        # Most requirements have no limit, so their index pages are not read.
        if not limits:
            return ""
        released = {wheel.version for wheel in self._index.find_wheels(demand.name)}
        if demand.name == "torch":
            released |= {build.torch for build in self._resolver_input.catalog.builds}
        if demand.pinned:
            # The pinned version may have no file for the machine.
            released.add(Version(demand.pinned))
        allowed = [one for one in released if demand.allows(one.public)]
        excluding = [one for one in limits if not any(map(one.allows, allowed))]
        texts = dict.fromkeys(map(format_limit, excluding))
        return join_names([*texts]) if allowed else ""

    def _explain_unmet_requirement(self, package: str, newest: Version) -> Obstacle:
        """Return the first requirement of a release that is not satisfied."""
        demand = self._find_unmet_requirement(package, newest)
        if demand is None and package == "torch":
            # uv selects other packages before torch, so another release may exist.
            demand = self._find_unmet_requirement(package, newest, package)
        if demand is None:
            return Obstacle()
        sentence = f"{package} {newest} requires {remove_marker(demand)}"
        requirers = self._index.find_requirers(demand.name, self._versions)
        limited_by = next(iter(requirers), demand.name)
        if limited_by == package or limited_by not in self._versions:
            limited_by = ""
        limits = self._find_excluding_limits(demand)
        wheel = self._index.find_wheel_for_newer_glibc(
            demand.name, Version("0"), [demand]
        )
        limit = wheel and self._explain_newer_wheel(wheel, wheel.version)
        if limit:
            return Obstacle(
                f"{sentence}, which requires {limit.message}", code=limit.code
            )
        if self._index.is_unavailable(demand):
            sentence += ", and no source has a compatible version"
            limited_by = ""
        elif limits:
            sentence += f", and {limits} is requested"
            limited_by = limits
        elif not self._is_fixed(demand.name):
            allowed = filter(demand.allows, self._index.find_releases(demand.name))
            version = next(iter(allowed), None)
            other = version and self._find_dependency_obstacle(
                demand.name, version, package
            )
            if other:
                sentence += f", and {other.why}"
                limited_by = other.limited_by or limited_by
        return Obstacle(sentence, limited_by)

    def _find_dependency_obstacle(
        self, package: str, version: Version, dependent: str
    ) -> Obstacle | None:
        """Return what excludes a required release of a dependency."""
        if str(version) in self._known.find_excluded_versions(package):
            return Obstacle(f"{package} {version} does not run here")
        further = self._find_unmet_requirement(package, version)
        if further:
            return Obstacle(f"{package} {version} requires {remove_marker(further)}")
        return self._find_conflict(package, version, dependent)

    def _find_unmet_requirement(
        self, package: str, version: Version, requirer: str = ""
    ) -> Requirement | None:
        """Return the unsatisfied requirement that excludes a release.

        Requirements that the request or a fact excludes are first, because others may be
        consequences of them.

        Args:
            package: The package.
            version: Its release.
            requirer: A package that would require the release, and may change with it.
        """

        def order(one: Requirement) -> tuple[bool, ...]:
            excluded = self._known.find_excluded_versions(one.name)
            return (
                not self._index.is_unavailable(one),
                not self._find_excluding_limits(one),
                not any(map(one.allows, excluded)),
                one.name != "torch",
            )

        for one in sorted(self._find_requirements(package, version), key=order):
            if one.name == requirer:
                continue
            selected = self._versions.get(one.name)
            is_lacking = selected is None and one.name in self._known.seen
            if requirer:
                # A release that is not selected may add packages.
                excluded = self._known.find_excluded_versions(one.name)
                is_lacking = is_lacking and bool(excluded)
            is_other = selected and not one.allows(selected)
            is_unmet = is_lacking or is_other or self._index.is_unavailable(one)
            if is_unmet and (requirer or not self._can_be_satisfied(one, package)):
                return one
        return None

    def _can_be_satisfied(self, demand: Requirement, package: str) -> bool:
        """Return whether another release satisfies a demand and all packages.

        In this case, the demand conflicts only with the selected release and is not the
        cause.

        Args:
            demand: The unsatisfied requirement.
            package: The package that has it.
        """
        if self._index.is_unavailable(demand):
            return False
        if package == "torch" and demand.name in self._index.names():
            return any(map(demand.allows, self._index.find_releases(demand.name)))
        if self._is_fixed(demand.name):
            return False
        excluded = self._known.find_excluded_versions(demand.name)
        for version in filter(demand.allows, self._index.find_releases(demand.name)):
            conflict = self._find_conflict(demand.name, version, package)
            if not conflict and str(version) not in excluded:
                unmet = self._find_unmet_requirement(demand.name, version, package)
                return unmet is None
        return False

    def _is_fixed(self, package: str) -> bool:
        """Return whether the request or torch determines a package."""
        return package in {*self._resolver_input.requested, *self._index.names()}

    def _find_requirements(
        self, package: str, version: Version
    ) -> Sequence[Requirement]:
        """Return a release's known requirements, with ones that torch omits.

        METADATA of requested packages was read to find their latest release. uv logs
        the requirements of the releases that it tries.
        """
        wheel = None
        if package in self._index.newest_releases():
            wheel = self._index.find_releases(package).get(version)
        if wheel:
            return self._index.read_metadata_requirements(wheel)
        requirements = self._index.find_dependencies(package, str(version))
        if package != "torch":
            return requirements
        torch = Version(version.public)
        return [*requirements, *self._resolver_input.catalog.constraints(torch)]

    # Warnings.

    def find_warnings(self) -> list[Reason]:
        """Return warnings about excluded releases and doubtful packages."""
        conflicts = load_members().find_conflicts(self._versions)
        reasons = [
            *self._explain_exclusions(),
            *(one for one in self._older_releases() if one.code != PROGRAM_HELD_BACK),
            *self._find_missing_extras(),
            *(Reason("packages-clash", message) for message in conflicts),
            *self._find_doubtful_packages(),
        ]
        return list(dict.fromkeys(reasons))

    def _explain_exclusions(self) -> Iterator[Reason]:
        newer = self._find_newer_facts()
        for package, fact in newer.items():
            version = self._versions.get(package)
            if not version and newer.keys() & self._index.find_requirers(package):
                # Only a release that has its own warning requires it.
                continue
            instead = "other versions of the packages that require it are selected"
            if version:
                unread = self._known.format_unread_releases(package, Version(version))
                instead = f"{package} {version} is selected{unread}"
            yield Reason("older-for-code", f"{fact.why}; {instead}")
        for fact in self._facts_here:
            if fact.requires:
                libraries = " and ".join(fact.requires)
                added = f"added {libraries}, which contains the library"
                yield Reason("library-added", f"{fact.why}; {added}")

    def _find_newer_facts(self) -> dict[str, Fact]:
        """Return the fact that rejects the latest release of each package."""
        newer = filter(self._is_newer, self._known.facts.values())
        newest_last = sorted(newer, key=lambda fact: Version(fact.version))
        return {fact.package: fact for fact in newest_last}

    def _is_newer(self, fact: Fact) -> bool:
        """Return whether a fact rejects a release above the selected one."""
        if not fact.why:
            return False
        # The version of a companion follows from torch's.
        if fact.package in COMPANIONS.intersection(self._index.read_pages()):
            return False
        version = self._versions.get(fact.package)
        is_newer = fact.package in self._known.seen
        if version:
            fact_version = parse_public_version(fact.version)
            is_newer = fact_version > parse_public_version(version)
        return is_newer and fact.rejects(self._resolution.torch)

    def _find_missing_extras(self) -> Iterator[Reason]:
        """Yield requested extras that a package lacks."""
        for package, version, extra in sorted(self._resolution.missing_extras):
            if package in self._resolver_input.requested:
                name = f"{package} {version}".strip()
                yield Reason("no-such-extra", f"{name} has no extra {extra}")

    def _find_doubtful_packages(self) -> Iterator[Reason]:
        """Yield warnings about packages that may not run on the machine."""
        inspector = self._resolver.inspector
        found = filter(None, map(inspector.inspected.get, self._resolution.wheels))
        results = {one.row.package: one for one in found}
        doubts = {name: self._find_doubt(one) for name, one in results.items()}
        for package, result in results.items():
            row, doubt = result.row, doubts[package]
            requirers = self._index.find_requirers(package, self._versions)
            if doubt is None:
                pass
            elif doubt.code == "not-inspected":
                yield from self._report_unread(row)
            elif not any(_is_implied(doubt, doubts.get(one)) for one in requirers):
                remedy = self._describe_remedy(result, doubt, requirers)
                name = f"{package} {self._versions[package]}"
                if requirers:
                    name = f"{name} ({format_requirers(requirers)})"
                yield Reason(MAY_NOT_RUN, f"{name} {doubt.message}{remedy}")
            has_gpu = not inspector.has_no_gpu
            if has_gpu and row.opens and package in load_members().must_open:
                message = (
                    f"{package} loads {row.opens[0]} by name: import torch first, "
                    "or add the library's folder to LD_LIBRARY_PATH"
                )
                yield Reason("opens-libraries", message)

    def _find_doubt(self, result: Compatibility) -> Reason | None:
        """Return why a package may not run on the machine, if known."""
        inspector = self._resolver.inspector
        row, rejection, warning = result.verdicts[self._resolution.torch]
        # Packages with the same files have their own warning.
        is_sharing = rejection and rejection.code == SHARED_FILES
        reason = warning if is_sharing else rejection or warning
        if reason and reason.code != "not-inspected":
            return reason
        useless = self._explain_useless_cuda(row)
        why = useless or self._explain_missing_library(row)
        if why:
            return Reason(_WITHOUT_GPU if useless else _WITHOUT_LIBRARY, why)
        # A read limit prevented inspecting the wheel.
        depth = inspector.max_depth(result.wheel, self._resolution)
        is_unread = not result.is_settled and row.depth < depth
        return Reason("not-inspected", "") if reason or is_unread else None

    def _report_unread(self, row: WheelRow) -> Iterator[Reason]:
        """Report a wheel that was not inspected.

        Yield it if it is requested, or replaces a release that does not run.
        """
        how = "inspected only in part" if row.depth else "not inspected"
        message = (
            f"{row.package} {row.version} may lack code for these GPUs: it was {how}, "
            "because the inspection limit was reached; test it on them"
        )
        is_requested = row.package in self._resolver_input.requested
        if is_requested or self._known.find_excluded_versions(row.package):
            yield Reason("not-inspected", message)
        else:
            self._index.session.reporter.detail("Inspected", message)

    def _describe_remedy(
        self, found: Compatibility, reason: Reason, requirers: Sequence[str]
    ) -> str:
        """Return how a package with a warning can be used, if known."""
        row, members, builds = found.row, load_members(), self._index.builds()
        is_misfit = reason.code not in {_WITHOUT_GPU, _WITHOUT_LIBRARY}
        toolkit = self._resolution.build.toolkit
        other = toolkit and rename_for_cuda(row.package, toolkit[0])
        if is_misfit and other and other != row.package:
            for extra in self._index.find_extras(other, self._resolution.wheels):
                return f"; {extra} requires {other}"
        if members.works_on_cpu.fullmatch(row.package):
            usable = [one for one in builds if found.runs_with([one])]
            remedy = "; it works on the CPU"
            if is_misfit and usable:
                backend = builds[usable[0]].backend
                remedy += f", and on the GPU with --backend {backend}"
            elif is_misfit:
                remedy += f", and {row.package} without a version may resolve to one for the GPU"
            return remedy
        if members.is_optional(row.package, row.witness or ""):
            return "; it works without this library"
        if reason.code != _OLD_DRIVER:
            return ""
        # The first requirer is requested, and the next package is of its extra.
        path = [*requirers, row.package]
        required = path[1] if requirers else ""
        extras = {*self._index.find_extras(required, self._resolution.wheels)}
        for program in self._resolver_input.programs:
            for extra in extras.intersection(
                f"{program.name}[{extra}]" for extra in program.extras
            ):
                return f"; update the driver, or omit the extra of {extra}"
        return "; update the driver"

    def _explain_useless_cuda(self, row: WheelRow) -> str:
        """Return why a package for CUDA needs another target.

        Packages that are only required are reported for their own libraries.
        """
        if not self._resolver.inspector.has_no_gpu:
            return ""
        why = [f"is linked to {name}" for name in row.needs if is_for_cuda(name)]
        is_named = remove_cuda_label(row.package) != row.package
        is_named |= row.package.startswith("cuda-")
        is_for_gpus = row.toolkit or row.has_runtime or row.unread
        # The wheel of cpm-kernels 1.0.11 has GPU code but no library.
        if (is_named and is_for_gpus) or (row.unread and not row.system):
            why.append("is for CUDA")
        if row.package in self._resolver_input.requested:
            version = self._versions[row.package]
            required = self._index.find_dependencies(row.package, version)
            libraries = filter(is_library_of_torch, requirement_names(required))
            why += [f"requires {name}" for name in sorted(libraries)]
        if not why:
            return ""
        return f"{why[0]}, and the target {self._resolver_input.target} has no GPU"

    def _explain_missing_library(self, row: WheelRow) -> str:
        """Return the linked libraries that no package of the lock provides."""
        lacking = set(filter(is_from_package, row.needs))
        if lacking:
            # The packages that torch requires contain only CUDA libraries.
            with_torch = load_members().with_torch.fullmatch
            others = [
                one for one in self._resolution.wheels if not with_torch(one.package)
            ]
            try:
                found = map_concurrently(
                    self._index.reader.library_names, others, WHEELS_AT_ONCE
                )
                lacking.difference_update(*found)
            except InstallationError:
                lacking.clear()
        names = sorted(lacking) + find_missing_libraries(row, self._versions)
        if not names:
            return ""
        return f"may not run: it is linked to {join_names(names)}, which no package in this lock provides"


def _is_implied(doubt: Reason, other: Reason | None) -> bool:
    """Return whether a doubt is the same as one about a requirer."""
    is_same = other is not None and other.code == doubt.code
    return is_same and doubt.code in {_OLD_DRIVER, _WITHOUT_GPU}


def find_versions_without_torch(resolver: Resolver) -> Mapping[str, str]:
    """Return uv's versions without the torch that gpuinstall adds.

    The result is empty if the request contains or requires torch.
    """
    resolver_input = resolver.resolver_input
    requirements = resolver_input.lock_request.request.requirements
    if resolver_input.catalog.family & requirement_names(requirements):
        return {}
    without = run_uv_without_facts(resolver_input, resolver.index, added=())
    versions = {} if isinstance(without, Conflict) else list_versions(without.packages)
    if "torch" in versions:
        return {}
    return {name: versions[name] for name in versions if not is_library_of_torch(name)}


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


def shorten_explanation(account: str) -> str:
    """Shorten a long message from uv."""
    return shorten(account.removeprefix(_PREAMBLE), 300)
