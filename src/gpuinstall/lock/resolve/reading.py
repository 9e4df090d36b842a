"""Read the wheels of an answer, each to the depth that may matter.

The GPU code of requested packages, the catalog's core packages, and extensions is read
first, and then the code of dependencies that may use GPUs, the nearest first.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cached_property, partial

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import Requirement, requirement_names
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import Wheel
from gpuinstall.lock.resolve.facts import Answer, Facts
from gpuinstall.lock.resolve.lane import Lane
from gpuinstall.lock.resolve.scope import Scope
from gpuinstall.wheels.compatibility import Compatibility, find_missing_libraries
from gpuinstall.wheels.inspector import Context, is_core, is_required_by_torch
from gpuinstall.wheels.learned.row import Depth
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import (
    is_from_package,
    is_separate_library,
    parse_name_cuda,
)

WHEELS_AT_ONCE = 32
"""Maximum number of wheels inspected concurrently."""

Steps = Generator[Compatibility, None, None]
"""The compatibility of a wheel, at each depth to which it is read."""


def open_scope(answer: Answer, known: Facts, lane: Lane) -> Scope:
    """Return the scope of an answer.

    Local projects and typed extras add packages to the request.
    """
    scope = Scope(lane.question, answer, known.log, lane.question.requested)
    added = set[str]()
    for project in answer.packages:
        if project.directory:
            required = scope.find_dependencies(project.name)
            added |= {project.name, *requirement_names(required)}
    with_extras = {one.name for one in lane.question.programs if one.extras}
    for wheel in answer.wheels:
        if wheel.package in with_extras:
            declared = lane.read_metadata_requirements(wheel)
            plain = filter(lane.question.is_applicable, declared)
            added |= requirement_names(declared) - requirement_names(plain)
    return replace(scope, requested=scope.requested | added)


class Reading(Value):
    """The wheels of one answer, which a lane reads."""

    scope: Scope
    known: Facts
    lane: Lane

    def read_new_wheels(self) -> list[Compatibility]:
        """Read the wheels that no earlier answer had; return the results."""
        scope, lane = self.scope, self.lane
        required = scope.torch_requirements
        new = [
            wheel
            for wheel in scope.wheels
            if wheel not in lane.inspected and not is_required_by_torch(wheel, required)
        ]
        furthest = len(scope.answer.versions)
        new.sort(key=lambda wheel: scope.distances.get(wheel.package, furthest))
        new.sort(key=lambda wheel: not scope.is_decisive(wheel.package))
        limit = lane.reader.deepest

        def begin(wheel: Wheel) -> tuple[Steps, Compatibility | None]:
            steps = self._inspect(wheel, limit)
            # Dependencies are read within what remains of the limits.
            first = Depth.PART if scope.is_decisive(wheel.package) else Depth.TABLES
            return steps, self._advance(wheel, steps, until=first)

        # Read the rest of the wheels in a fixed order, so that limits have one result.
        results = []
        begun = map_concurrently(begin, new, WHEELS_AT_ONCE)
        for wheel, (steps, part) in zip(new, begun, strict=True):
            found = part
            if part and lane.reader.may_read_rest(part.row):
                found = self._advance(wheel, steps, part)
            steps.close()
            if found:
                results.append(found)
        lane.inspected.update((one.wheel, one) for one in results)
        return results

    def _advance(
        self,
        wheel: Wheel,
        steps: Steps,
        found: Compatibility | None = None,
        until: Depth = Depth.WHOLE,
    ) -> Compatibility | None:
        """Read a wheel to a depth; warn if it cannot be read.

        Args:
            wheel: The wheel.
            steps: The remaining steps of its inspection.
            found: The result of the previous steps.
            until: The depth.
        """
        try:
            for step in steps:
                found = step
                if found.row.depth == until:
                    break
        except InstallationError as error:
            message = (
                f"could not determine whether {wheel.package} {wheel.version} has code "
                f"for these GPUs: {error.sentence}"
            )
            self.lane.session.reporter.warn(message)
            return None
        return found

    def _inspect(self, wheel: Wheel, limit: Depth) -> Steps:
        """Yield the compatibility of a wheel, unless it is not inspected.

        Args:
            wheel: The wheel.
            limit: The depth that the limits of the lock allow.
        """
        members, reader = load_members(), self.lane.reader
        if members.for_cpu_alone.fullmatch(wheel.package):
            return
        is_pure, package = wheel.is_pure, wheel.package
        # A wheel with the platform tag "any" can contain native libraries.
        may_have_libraries = is_core(package) or members.named_for_gpus.fullmatch(
            package
        )
        is_skipped = is_pure and not may_have_libraries
        is_of_torch = members.with_torch.fullmatch(package)
        has_row = members.lowest_chip(package, wheel.version) is not None
        is_skipped |= bool(is_of_torch) and not has_row
        if is_skipped and not self.scope.is_requested(package):
            return
        deepest = self.max_depth(wheel)
        if (self.scope.question.has_no_gpu and not deepest) or (
            is_pure and not reader.may_have_code(wheel)
        ):
            return
        # The list of files of a pure wheel is short.
        least = Depth.TABLES if is_pure else limit
        least = max(reader.find_read_depth(wheel.url), least, limit)
        yield from self.read(wheel, min(deepest, least))

    def read(
        self, wheel: Wheel, deepest: Depth, builds: frozenset[str] = frozenset()
    ) -> Steps:
        """Read a wheel step by step until its compatibility is certain.

        Args:
            wheel: The wheel.
            deepest: The maximum depth to which to read the wheel.
            builds: The builds of torch to check; empty: all.

        Raises:
            InstallationError: The wheel cannot be read.
        """
        markers = self.scope.question.markers
        return self.lane.inspector.steps(
            wheel,
            partial(self.lane.reader.readings, wheel, environment=markers),
            Context(self.scope.answer.versions, builds, self.known.linked),
            deepest,
        )

    def max_depth(self, wheel: Wheel) -> Depth:
        """Return how thoroughly to inspect a wheel.

        The code of the lines of a frozen requirements file is not read, but the tables
        of torch's packages are. A target without GPUs needs only torch's symbols in
        requested packages.
        """
        members, scope, question = load_members(), self.scope, self.scope.question
        package = wheel.package
        is_requested = package in scope.requested
        is_read = is_requested or is_core(package)
        if question.is_frozen:
            is_read = is_core(package) and not members.with_torch.fullmatch(package)
        elif not is_read and not members.has_minimum(package):
            reader, build = self.lane.reader, question.builds[0]
            is_read = scope.is_for_gpus(package)
            is_read = is_read or reader.may_use_gpus(wheel, build, question.markers)
        deepest = Depth.WHOLE if is_read else Depth.METADATA
        if package in question.catalog.family and not is_read:
            return Depth.TABLES
        if question.has_no_gpu and not is_requested:
            return min(deepest, Depth.TABLES)
        # Reading a part of the package is enough for a warning.
        return min(deepest, Depth.PART) if scope.is_optional(package) else deepest

    # The results.

    @cached_property
    def results(self) -> dict[str, Compatibility]:
        """The results of inspecting the wheels of the answer, by package."""
        found = map(self.lane.inspected.get, self.scope.answer.wheels)
        return {one.wheel.package: one for one in found if one}

    def find_unread(self) -> frozenset[str]:
        """Return the packages that a limit prevented from being inspected."""
        return frozenset(
            package for package, one in self.results.items() if self.is_unread(one)
        )

    def is_unread(self, found: Compatibility) -> bool:
        """Return whether a limit prevented a wheel from being inspected."""
        return not found.is_settled and found.row.depth < self.max_depth(found.wheel)

    def find_lacking_libraries(self) -> dict[str, tuple[str, ...]]:
        """Return the needed libraries that no package provides, by package."""
        answer = self.scope.answer
        lacking = {}
        for package, found in self.results.items():
            row = found.verdicts[answer.torch].row
            if package not in self.scope.requested or len(row.cudas) > 1:
                # A part may be loaded on demand, or only for torch's CUDA.
                row = replace(row, needs=row.common)
            needed = set(filter(is_from_package, row.needs))
            if needed:
                needed -= self._list_libraries()
            missing = find_missing_libraries(row, answer.versions)
            if needed or missing:
                lacking[package] = (*sorted(needed), *missing)
        return lacking

    def _list_libraries(self) -> frozenset[str]:
        """Return the libraries in the wheels of the answer."""
        # The packages that torch requires contain only CUDA libraries.
        with_torch = load_members().with_torch.fullmatch
        wheels = [
            one for one in self.scope.answer.wheels if not with_torch(one.package)
        ]
        names = map_concurrently(self.lane.reader.library_names, wheels, WHEELS_AT_ONCE)
        return frozenset[str]().union(*names)

    def find_linked_dependencies(self) -> frozenset[str]:
        """Return dependencies whose libraries other packages are linked to."""
        linked = set[str]()
        for wheel in self.scope.wheels:
            found = self.lane.inspected.get(wheel)
            if found is None or not any(map(is_separate_library, found.row.needs)):
                continue
            added = map(Requirement.of, found.adds)
            for requirement in (*found.row.requirements(), *added):
                is_applicable = self.scope.question.is_applicable(requirement)
                if parse_name_cuda(requirement.name) and is_applicable:
                    linked.add(requirement.name)
        return frozenset(linked)
