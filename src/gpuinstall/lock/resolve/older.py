"""Find the latest older release that runs, instead of a rejected one.

Older releases are tried one by one. After eight rejections for one reason, each further
rejection doubles the stride, and the releases skipped before the first one that runs are
bisected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import replace
from gpuinstall.catalog import Wheel
from gpuinstall.lock.resolve.facts import Fact, create_wheel_fact
from gpuinstall.lock.resolve.lane import Lane
from gpuinstall.lock.resolve.reading import WHEELS_AT_ONCE, Reading
from gpuinstall.lock.resolve.scope import works_without
from gpuinstall.wheels.compatibility import (
    Compatibility,
    find_missing_code,
)
from gpuinstall.wheels.learned.row import Depth
from gpuinstall.wheels.members import load_members

if TYPE_CHECKING:
    from packaging.version import Version

REJECTIONS = 8
"""Number of rejections for one reason before skipping releases."""

ENOUGH = 3
"""Rejections for one reason after which unread releases are rejected."""

_UNREAD = "unread"


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
        self.is_declared = rejected.row.declared_cuda is not None
        """Whether METADATA or the catalog may reject an unread release."""
        known = reading.known.find_package_facts(fact.package)
        self.causes = Counter(one.code for one in known if one.code)
        self.causes[fact.code or self._find_code(rejected)] += 1

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
            if place < following or not self._may_inspect:
                facts[wheel] = self._skip(wheel)
                continue
            facts[wheel], cause = self._inspect(wheel)
            runs = not cause
            if runs:
                self._try_skipped(wheels[last + 1 : place], facts)
                break
            last = place
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
        found = filter(None, [self.fact, *facts.values()])
        return [one for one in found if is_complete or not one.unread]

    def _try_skipped(
        self, skipped: Sequence[Wheel], facts: dict[Wheel, Fact | None]
    ) -> None:
        """Bisect the releases that were skipped before one that runs."""
        while skipped and self._may_inspect:
            middle = len(skipped) // 2
            wheel = skipped[middle]
            facts[wheel], cause = self._inspect(wheel)
            skipped = skipped[middle + 1 :] if cause else skipped[:middle]

    @property
    def _is_limit_reached(self) -> bool:
        is_limit_reached = self.reading.lane.reader.is_limit_reached
        return is_limit_reached and self.deepest > Depth.METADATA

    @property
    def _may_inspect(self) -> bool:
        # METADATA of a package with a declared CUDA does not count.
        return self.is_declared or not self._is_limit_reached

    def _skip(self, wheel: Wheel) -> Fact:
        """Return the fact that a release was not tried."""
        fact = create_skipped_fact(wheel, "several newer ones do not run")
        return replace(fact, builds=self.fact.builds)

    def _find_candidates(self, *, is_optional: bool) -> list[Wheel]:
        """Return the older releases that requirements allow, latest first.

        METADATA must also allow a relevant build of torch.
        """
        wheel, lane = self.rejected.wheel, self.reading.lane
        releases = lane.releases.find_releases(wheel.package).items()
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
            return create_skipped_fact(wheel, error.message), _UNREAD
        fact = create_wheel_fact(found, self.torch)
        if not found.runs_with(self.builds):
            return fact, self._find_code(found)
        if self.deepest is Depth.METADATA:
            return fact, ""
        why = find_missing_code(found, self.compiled)
        if why:
            skipped = create_skipped_fact(wheel, f"it {why.message}", why.code)
            return skipped, why.code
        row, _, warning = found.verdicts[self.torch]
        # The catalog has facts about some packages that their files lack.
        is_known = row.codes or row.package in load_members().stated
        is_known = is_known or found.is_settled
        is_whole = row.is_whole and row.depth > Depth.METADATA
        if not is_whole and (warning or not is_known):
            skipped = create_skipped_fact(wheel, "it was inspected only in part")
            code = warning.code if warning and self.causes[warning.code] else ""
            return replace(skipped, code=code), code or _UNREAD
        return fact, ""

    def _read(self, wheel: Wheel) -> Compatibility:
        """Read a wheel until it is certain enough whether it runs."""
        may_read_rest = self.reading.lane.reader.may_read_rest
        deepest = Depth.METADATA if self._is_limit_reached else self.deepest
        with closing(self.reading.read(wheel, deepest, self.builds)) as steps:
            for found in steps:
                if found.row.depth == Depth.PART and (
                    self._lacks_code(found) or not may_read_rest(found.row)
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
    releases = lane.releases.find_releases(wheel.package).items()
    compiled = [version for version, one in releases if not one.is_pure]
    if not compiled or wheel.version > compiled[0]:
        return None
    # nvidia-cupynumeric-cu12 0.0.0 contains and requires nothing.
    is_pure = found.row.requires and wheel.version < compiled[-1]
    return None if is_pure else compiled[0]


def create_skipped_fact(wheel: Wheel, why: str, code: str = "") -> Fact:
    """Return the fact that excludes a skipped release.

    Without a reason code, the fact marks the release as not inspected.
    """
    message = f"{wheel.package} {wheel.version} was skipped: {why}"
    return replace(Fact.excluding(wheel, message, code), unread="" if code else why)
