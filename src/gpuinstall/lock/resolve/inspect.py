"""Find facts that METADATA omits in the wheels that uv selected.

The inspector reads the GPU code of requested packages, the catalog's core packages,
extensions, and then of dependencies that may use GPUs, the nearest first.
Certain results become facts, and uncertain results become warnings.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.location import SourceKind
from gpuinstall.base.requirement import Requirement, requirement_names
from gpuinstall.base.text import join_names
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import replace
from gpuinstall.catalog import COMPANIONS, PAIRED, Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.file.target import select_best_files
from gpuinstall.lock.resolve.knowledge import Fact, Knowledge, UvResolution
from gpuinstall.lock.resolve.package_index import PackageIndex
from gpuinstall.lock.resolve.resolver_input import ResolverInput
from gpuinstall.lock.uv.builds import find_source_builds
from gpuinstall.plan.companions import Companions
from gpuinstall.wheels.compatibility import (
    OTHER_TORCH,
    SHARED_FILES,
    Compatibility,
    assess_gpus,
    can_load_with,
    find_missing_libraries,
    needs_older_cuda,
)
from gpuinstall.wheels.inspector import (
    Context,
    Inspector,
    is_core,
    is_required_by_torch,
)
from gpuinstall.wheels.learned.row import Depth, WheelRow
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import (
    is_from_package,
    is_separate_library,
    parse_name_cuda,
)
from gpuinstall.wheels.package import remove_cuda_label

if TYPE_CHECKING:
    from packaging.version import Version

WHEELS_AT_ONCE = 32
"""Maximum number of wheels inspected concurrently."""

Steps = Generator[Compatibility, None, None]
"""The compatibility of a wheel, at each depth to which it is read."""


def create_wheel_fact(found: Compatibility, torch: str) -> Fact | None:
    """Return the fact that a wheel's METADATA omits, or None.

    Args:
        found: The compatibility of the wheel.
        torch: The selected build of torch, for the reason to report.
    """
    running = found.compatible_builds
    runs_everywhere = len(running) == len(found.verdicts)
    is_declared = runs_everywhere or (found.allowed and found.allowed <= running)
    if is_declared and not found.adds:
        return None
    package, version = found.wheel.package, str(found.wheel.version)
    why = found.reason(torch) or found.why_adds
    message = f"{package} {version} {why.message}" if why else ""
    if found.allowed and running.isdisjoint(found.allowed):
        # The wheel runs with none of the builds that its METADATA allows.
        limits = [one for one in found.row.requirements() if one.name == "torch"]
        if running:
            message += f", and it requires {join_names([one.text for one in limits])}"
        running = frozenset()
    rejected = {build: found.rejects(build) for build in found.verdicts}
    reasons = {build: one for build, one in rejected.items() if one}
    return Fact(
        package,
        version,
        message,
        {build: f"{package} {version} {one.message}" for build, one in reasons.items()},
        None if runs_everywhere else running,
        found.adds,
        found.wheel,
        unusable=found.unusable,
        toolkit=found.row.toolkit,
        torches=found.row.torch.fits,
        is_about_files={one.code for one in reasons.values()} == {SHARED_FILES},
    )


class ResolutionInspector:
    """An inspector for one target that inspects each wheel only once."""

    def __init__(self, resolver_input: ResolverInput, index: PackageIndex) -> None:
        self.resolver_input = resolver_input
        self.index = index
        self.inspector = Inspector(
            index.builds(), resolver_input.gpus, resolver_input.markers
        )
        self.inspected: dict[Wheel, Compatibility] = {}
        self.requested = resolver_input.requested
        """The requested packages, and what local projects and extras add."""

        # Only torch's symbols result in facts, CUDA only in warnings.
        self.has_no_gpu = resolver_input.has_no_gpu
        answered = {"torch"} if resolver_input.builds[0].learned else PAIRED
        self.is_idle = resolver_input.requested <= answered

    def find_companion_facts(self, resolution: UvResolution) -> Iterator[Fact]:
        """Yield the compatible builds of torch-family packages, as facts.

        Packages that are compatible with the selected build are omitted.
        """
        for wheel in resolution.wheels:
            package = wheel.package
            if package == "torch" or resolution.torch in self._find_paired_builds(
                wheel
            ):
                continue
            for other in self.index.find_wheels(package):
                # uv would select the version with another local label next.
                if other.version.public == wheel.version.public:
                    yield self._create_companion_fact(other, resolution.torch)

    def _create_companion_fact(self, wheel: Wheel, torch: str) -> Fact:
        """Return the builds of torch that are compatible with a companion."""
        package, version = wheel.package, str(wheel.version)
        paired = self._find_paired_builds(wheel)
        reasons = {
            label: f"{package} {version} is incompatible with torch {build.name}"
            for label, build in self.index.builds().items()
            if label not in paired
        }
        why = reasons.get(torch, "")
        return Fact(package, version, why, reasons, paired, wheel=wheel)

    def _find_paired_builds(self, wheel: Wheel) -> frozenset[str]:
        """Return the builds of torch that the catalog pairs with a package."""
        builds = self.index.builds()
        # METADATA of torchaudio 2.11 does not require torch.
        if wheel.package not in {*COMPANIONS, *self.index.read_pages()}:
            return frozenset(builds)
        companions = Companions((), self.resolver_input.catalog)
        paired = set()
        for version, build in builds.items():
            loading = None
            if (wheel.package, wheel.version.public) in companions.catalog.companions:
                loading = companions.find_available_versions(
                    build, Requirement.of(wheel.package)
                )
            is_paired = loading is None or wheel.version.public in loading
            others = {*self.index.backends} - {build.backend.tag}
            if is_paired and wheel.version.local not in others:
                paired.add(version)
        return frozenset(paired)

    def inspect(
        self, resolution: UvResolution, known: Knowledge
    ) -> list[Compatibility]:
        """Inspect the new wheels of a resolution, and return the results."""
        self.requested |= self._find_added_packages(resolution)
        required = self._find_torch_requirements(resolution)
        new = [
            wheel
            for wheel in self.select_installed_wheels(resolution)
            if wheel not in self.inspected and not is_required_by_torch(wheel, required)
        ]
        distances = self.find_distances(resolution)
        furthest = len(resolution.versions)
        new.sort(key=lambda wheel: distances.get(wheel.package, furthest))
        new.sort(key=lambda wheel: not self._is_decisive(wheel.package))
        reader = self.index.reader
        is_limit_reached = reader.is_limit_reached

        def begin(wheel: Wheel) -> tuple[Steps, Compatibility | None]:
            steps = self._inspect(wheel, resolution, known, is_limited=is_limit_reached)
            # Dependencies are read within what remains of the limits.
            first = Depth.PART if self._is_decisive(wheel.package) else Depth.TABLES
            return steps, self._advance(wheel, steps, until=first)

        # Read the rest of the wheels in a fixed order, so that limits have one result.
        results = []
        begun = map_concurrently(begin, new, WHEELS_AT_ONCE)
        for wheel, (steps, part) in zip(new, begun, strict=True):
            found = part
            if part and reader.may_read_rest(part.row):
                found = self._advance(wheel, steps, part)
            steps.close()
            if found:
                results.append(found)
        self.inspected.update((one.wheel, one) for one in results)
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
            self.index.session.reporter.warn(message)
            return None
        return found

    def select_installed_wheels(self, resolution: UvResolution) -> Sequence[Wheel]:
        """Return the wheels that would be installed.

        A lock may have several wheels of a package, for different glibc versions.
        """
        others = [wheel for wheel in resolution.wheels if wheel.package not in PAIRED]
        return select_best_files(
            others, self.resolver_input.tags, lambda wheel: wheel.package
        )

    def _find_torch_requirements(self, resolution: UvResolution) -> list[Requirement]:
        """Return the requirements of torch and of its libraries.

        Packages that satisfy these requirements are compatible in any request.
        """
        found = [Requirement.of("torch")]
        # The list grows while it is read.
        for required in found:
            further = self.find_dependencies(required.name, resolution)
            found += [one for one in further if one not in found]
        return found

    def find_dependencies(
        self, package: str, resolution: UvResolution
    ) -> Sequence[Requirement]:
        """Return the dependencies of a package at its resolved version."""
        version = resolution.versions.get(package, "")
        return self.index.log.find_dependencies(package, version)

    def find_pure_files(self, rejected: Compatibility) -> tuple[Wheel, ...]:
        """Return files without native wheels that a pure wheel can replace.

        If a version has both, uv would select the native wheel.
        """
        wheel = rejected.wheel
        files = self.index.find_wheels(wheel.package)
        pure = {one for one in files if one.version == wheel.version and one.is_pure}
        if wheel.filename in {"", *(one.filename for one in pure)} or not pure:
            return ()
        return tuple(
            one for one in files if one.version != wheel.version or one in pure
        )

    def find_compiled_release(self, found: Compatibility) -> Version | None:
        """Return the release with compiled code that others must have, too.

        If METADATA excludes the compiled releases, uv selects one without libraries.
        A program that was compiled before and after this release was not pure.
        """
        wheel = found.wheel
        if found.row.system or not wheel.is_pure:
            return wheel.version
        releases = self.index.find_releases(wheel.package).items()
        compiled = [version for version, one in releases if not one.is_pure]
        if not compiled or wheel.version > compiled[0]:
            return None
        # nvidia-cupynumeric-cu12 0.0.0 contains and requires nothing.
        is_pure = found.row.requires and wheel.version < compiled[-1]
        return None if is_pure else compiled[0]

    def find_linked_dependencies(self, resolution: UvResolution) -> frozenset[str]:
        """Return dependencies whose libraries other packages are linked to."""
        linked = set[str]()
        for wheel in self.select_installed_wheels(resolution):
            found = self.inspected.get(wheel)
            if found is None or not any(map(is_separate_library, found.row.needs)):
                continue
            added = map(Requirement.of, found.adds)
            for requirement in (*found.row.requirements(), *added):
                if parse_name_cuda(
                    requirement.name
                ) and self.resolver_input.is_applicable(requirement):
                    linked.add(requirement.name)
        return frozenset(linked)

    def find_distances(self, resolution: UvResolution) -> dict[str, int]:
        """Return each package's distance from the request."""
        distances = dict.fromkeys(sorted(self.requested), 0)
        pending = [*distances]
        # The list grows while it is read.
        for package in pending:
            for one in self.find_dependencies(package, resolution):
                if one.name not in distances:
                    distances[one.name] = distances[package] + 1
                    pending.append(one.name)
        return distances

    def _find_added_packages(self, resolution: UvResolution) -> set[str]:
        """Return what local projects and typed extras add to the request."""
        added = set[str]()
        for project in resolution.packages:
            if project.directory:
                required = self.find_dependencies(project.name, resolution)
                added |= {project.name, *requirement_names(required)}
        with_extras = {one.name for one in self.resolver_input.programs if one.extras}
        for wheel in resolution.wheels:
            if wheel.package in with_extras:
                declared = self.index.read_metadata_requirements(wheel)
                plain = filter(self.resolver_input.is_applicable, declared)
                added |= requirement_names(declared) - requirement_names(plain)
        return added

    def find_installed(self, resolution: UvResolution) -> dict[str, Compatibility]:
        """Return the results of inspecting the wheels of a resolution."""
        found = map(self.inspected.get, resolution.wheels)
        return {one.wheel.package: one for one in found if one}

    def find_unread(self, resolution: UvResolution) -> frozenset[str]:
        """Return the packages that a limit prevented from being inspected."""
        found = self.find_installed(resolution)
        return frozenset(
            package
            for package, one in found.items()
            if not one.is_settled
            and one.row.depth < self.max_depth(one.wheel, resolution)
        )

    def find_lacking_libraries(
        self, resolution: UvResolution
    ) -> dict[str, tuple[str, ...]]:
        """Return the needed libraries that no package provides, by package."""
        lacking = {}
        for package, found in self.find_installed(resolution).items():
            row = found.verdicts[resolution.torch].row
            if package not in self.requested or len(row.cudas) > 1:
                # A part may be loaded on demand, or only for torch's CUDA.
                row = replace(row, needs=row.common)
            needed = set(filter(is_from_package, row.needs))
            if needed:
                needed -= self._list_libraries(resolution)
            missing = find_missing_libraries(row, resolution.versions)
            if needed or missing:
                lacking[package] = (*sorted(needed), *missing)
        return lacking

    def _list_libraries(self, resolution: UvResolution) -> frozenset[str]:
        """Return the libraries in the wheels of a resolution."""
        # The packages that torch requires contain only CUDA libraries.
        with_torch = load_members().with_torch.fullmatch
        wheels = [one for one in resolution.wheels if not with_torch(one.package)]
        names = map_concurrently(
            self.index.reader.library_names, wheels, WHEELS_AT_ONCE
        )
        return frozenset[str]().union(*names)

    def find_source_facts(self, resolution: UvResolution) -> Iterator[Fact]:
        """Yield facts about sdists whose CUDA does not support the GPUs."""
        build = self.resolver_input.builds[0]
        for package in find_sdists(resolution):
            for version in self.index.find_source_versions(package):
                cuda = parse_name_cuda(package)
                row = WheelRow(
                    package=package,
                    version=version,
                    backend=build.backend.tag,
                    platform=f"{build.os}-{build.arch}",
                    cuda=f"{cuda}.0" if cuda else None,
                )
                why = assess_gpus(row, self.resolver_input.gpus).rejection
                if why:
                    message = f"{package} {version} {why.message}"
                    yield Fact(package, version, message, builds=frozenset())

    # One wheel.

    def _is_decisive(self, package: str) -> bool:
        """Return whether a package is requested or a core package."""
        return self._is_requested(package) or is_core(package)

    def _is_requested(self, package: str) -> bool:
        """Return whether a package is requested, maybe without its CUDA label.

        ``holoscan`` consists of the packages that ``holoscan-cu13`` requires.
        """
        names = {package, remove_cuda_label(package)}
        return not names.isdisjoint(self.requested)

    def decides(self, found: Compatibility, resolution: UvResolution) -> bool:
        """Return whether a wheel may change the versions of other packages."""
        package = found.wheel.package
        if self.is_optional(package) or self.works_without(found):
            return False
        has_row = load_members().lowest_chip(package, found.wheel.version)
        is_certain = self._is_decisive(package) or bool(has_row)
        return is_certain or self._decides_as_dependency(found, resolution)

    def _decides_as_dependency(
        self, found: Compatibility, resolution: UvResolution
    ) -> bool:
        """Return whether a dependency may change other packages.

        The CUDA version in its name, other symbols of torch, and missing code only
        cause a warning: sglang 0.5.23 loads sgl-deep-ep on demand. So does a package
        such as gpt4all 2.8.2, whose name and requirements indicate no need of a GPU.
        """
        package, row = found.wheel.package, found.row
        if not self.is_for_gpus(package, resolution):
            return False
        if not found.unusable:
            reason = found.reason(resolution.torch)
            return reason is None or reason.code != OTHER_TORCH
        is_linked = bool(row.linked) or not parse_name_cuda(package)
        return is_linked and not row.codes

    def find_allowed_builds(self, wheel: Wheel) -> frozenset[str]:
        """Return the builds of torch that the METADATA of a wheel allows."""
        requirements = self.index.read_metadata_requirements(wheel)
        return self.inspector.allowed_builds(requirements)

    def max_depth(self, wheel: Wheel, resolution: UvResolution) -> Depth:
        """Return how thoroughly to inspect a wheel.

        The code of the lines of a frozen requirements file is not read, but the tables
        of torch's packages are. A target without GPUs needs only torch's symbols in
        requested packages.
        """
        members = load_members()
        package = wheel.package
        is_requested = package in self.requested
        is_read = is_requested or is_core(package)
        if self.resolver_input.is_frozen:
            is_read = is_core(package) and not members.with_torch.fullmatch(package)
        elif not is_read and not members.has_minimum(package):
            is_read = self.is_for_gpus(package, resolution)
            build, markers = self.resolver_input.builds[0], self.resolver_input.markers
            is_read = is_read or self.index.reader.may_use_gpus(wheel, build, markers)
        deepest = Depth.WHOLE if is_read else Depth.METADATA
        if package in self.resolver_input.catalog.family and not is_read:
            return Depth.TABLES
        if self.has_no_gpu and not is_requested:
            return min(deepest, Depth.TABLES)
        # Reading a part of the package is enough for a warning.
        return min(deepest, Depth.PART) if self.is_optional(package) else deepest

    def is_for_gpus(self, package: str, resolution: UvResolution) -> bool:
        """Return whether the name or requirements indicate GPU code."""
        members = load_members()
        # METADATA of torchcodec does not require torch.
        return (
            package in self.resolver_input.catalog.family
            or package in self.index.log.of_cuda_extras
            or members.named_for_gpus.fullmatch(package) is not None
            or any(
                members.compiled_with.fullmatch(one.name)
                for one in self.find_dependencies(package, resolution)
            )
        )

    def works_without(self, found: Compatibility) -> bool:
        """Return whether a package works without its rejected library."""
        return load_members().is_optional(found.wheel.package, found.row.witness or "")

    def is_optional(self, package: str) -> bool:
        """Return whether a package or its GPU code is optional."""
        request = self.resolver_input.lock_request.request
        pinned = [one.name for one in request.requirements if one.is_exact]
        if package in pinned and load_members().works_on_cpu.fullmatch(package):
            return True
        extension = load_extensions().rows.get(package)
        requested = self.requested
        is_frozen = self.resolver_input.is_frozen
        if extension is None or (package in requested and not is_frozen):
            return False
        return bool(extension.optional_for & {*requested, "*"})

    def _inspect(
        self,
        wheel: Wheel,
        resolution: UvResolution,
        known: Knowledge,
        *,
        is_limited: bool,
    ) -> Steps:
        """Yield the compatibility of a wheel, unless it is not inspected.

        Args:
            wheel: The wheel.
            resolution: The resolution with the wheel.
            known: The facts found so far.
            is_limited: Whether a read limit of the lock is reached.
        """
        members = load_members()
        if members.for_cpu_alone.fullmatch(wheel.package):
            return
        reader = self.index.reader
        is_pure = wheel.is_pure
        # A wheel with the platform tag "any" can contain native libraries.
        is_skipped = is_pure and not members.named_for_gpus.fullmatch(wheel.package)
        is_of_torch = members.with_torch.fullmatch(wheel.package)
        has_row = members.lowest_chip(wheel.package, wheel.version) is not None
        is_skipped |= bool(is_of_torch) and not has_row
        if is_skipped and not self._is_requested(wheel.package):
            return
        deepest = self.max_depth(wheel, resolution)
        if (self.has_no_gpu and not deepest) or (
            is_pure and not reader.may_have_code(wheel)
        ):
            return
        if is_limited:
            # The list of files of a pure wheel is short.
            least = Depth.TABLES if is_pure else Depth.METADATA
            deepest = min(deepest, max(reader.find_read_depth(wheel.url), least))
        yield from self.read(wheel, resolution, known, deepest)

    def read(
        self,
        wheel: Wheel,
        resolution: UvResolution,
        known: Knowledge,
        deepest: Depth,
        builds: frozenset[str] = frozenset(),
    ) -> Steps:
        """Read a wheel step by step until its compatibility is certain.

        Args:
            wheel: The wheel.
            resolution: The resolution with the wheel.
            known: The facts found so far.
            deepest: The maximum depth to which to read the wheel.
            builds: The builds of torch to check; empty: all.

        Raises:
            InstallationError: The wheel cannot be read.
        """
        return self.inspector.steps(
            wheel,
            partial(
                self.index.reader.readings,
                wheel,
                environment=self.resolver_input.markers,
            ),
            Context(resolution.versions, builds, known.linked),
            deepest,
        )

    def has_only_older_cuda(
        self, found: Compatibility, resolution: UvResolution
    ) -> bool:
        """Return whether a wheel is rejected only for its older CUDA."""
        build = self.index.builds()[resolution.torch]
        row = found.verdicts[resolution.torch].row
        loads = can_load_with(row.torch, build) is not False
        return loads and needs_older_cuda(row, build)


def find_sdists(resolution: UvResolution) -> list[str]:
    """Return the packages that have only an sdist on their index.

    Folders and repositories are omitted, because the user selected them.
    """
    builds = find_source_builds(resolution.packages)
    return [build.package for build in builds if build.source.kind is SourceKind.SDIST]
