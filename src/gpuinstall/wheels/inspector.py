"""Inspect wheels until it is certain whether they run on the GPUs.

The resolver uses an ``Inspector`` as follows::

    if is_required_by_torch(wheel, requirements_of_torch):
        return None                                 # compatible, and never read
    inspector = Inspector(builds, gpus, environment)
    *_, found = inspector.steps(wheel, readings, Context(versions), Depth.WHOLE)
    found.rejects(build)                            # a Reason, or None
    found.verdicts[build].warning                   # a Reason, or None
    found.adds                                      # packages to require as well

``readings(build)`` is ``Reader.readings``: it yields METADATA, the tables of the
libraries, and GPU code. An older release is a
candidate only if ``find_missing_code`` returns None. If a version has several files,
the first for which ``runs_with`` is true is selected.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
)
from contextlib import ExitStack, closing
from typing import NamedTuple

from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import Requirement, requirement_names
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import Build, Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.wheels.compatibility import (
    BuildVerdict,
    Compatibility,
    ServedGpus,
    allow_other_library,
    allow_own_cuda,
    assess_gpus,
    find_missing_packages,
    find_undeclared_packages,
    may_have_own_runtime,
    needs_older_cuda,
    reject_build,
)
from gpuinstall.wheels.learned.row import Depth, WheelRow
from gpuinstall.wheels.members import load_members


class Context(NamedTuple):
    """The environment for which a wheel is inspected."""

    versions: Mapping[str, str] = {}
    """The resolved packages of the environment, if known."""
    builds: Collection[str] = ()
    """The relevant builds of torch. An empty tuple means every build.

    A wheel that is incompatible with all relevant builds is not read further.
    """
    linked: Collection[str] = ()
    """The packages whose libraries other wheels of the environment link to."""


def is_required_by_torch(wheel: Wheel, required: Iterable[Requirement]) -> bool:
    """Return whether torch requires this version of a package.

    Such a package needs no inspection, because the rules for builds of torch cover it.

    Args:
        wheel: A wheel of the package.
        required: The requirements of torch's METADATA.
    """
    return any(
        one.name == wheel.package and one.allows(wheel.version) for one in required
    )


def is_core(package: str) -> bool:
    """Return whether wheels of a package are read, although only required."""
    members = load_members()
    return (
        members.has_library(package)
        or package in members.stated
        or package in load_extensions().rows
    )


class Inspector(Value):
    """Inspects wheels for the builds and GPUs of one resolution."""

    builds: Mapping[str, Build]
    """The torch builds that can be selected, best first."""
    gpus: ServedGpus
    environment: Mapping[str, str]
    """The marker values of the target."""

    def steps(
        self,
        wheel: Wheel,
        readings: Callable[[Build], Generator[WheelRow, None, None]],
        context: Context,
        deepest: Depth,
    ) -> Generator[Compatibility, None, None]:
        """Read a wheel until it is certain whether it runs.

        Args:
            wheel: The wheel.
            readings: Yields the facts about the wheel for a build, with increasing
                depth.
            context: The environment and the relevant builds.
            deepest: The depth at which to stop.

        Yields:
            The compatibility at each depth.

        Raises:
            InstallationError: The wheel cannot be read.
        """
        is_per_cuda = wheel.package in load_members().per_cuda
        keys = {
            version: build.backend.tag if is_per_cuda else ""
            for version, build in self.builds.items()
        }
        with ExitStack() as stack:
            rows_of = {}
            for version, key in keys.items():
                if key not in rows_of:
                    of_build = readings(self.builds[version])
                    rows_of[key] = stack.enter_context(closing(of_build))
            for step in zip(*rows_of.values(), strict=True):
                by_key = dict(zip(rows_of, step, strict=True))
                rows = {version: by_key[key] for version, key in keys.items()}
                found = self.assess(wheel, rows, context)
                row = found.row
                is_done = row.depth >= deepest
                # A wheel with a CUDA version in its name may bundle its own runtime.
                may_be_independent = may_have_own_runtime(row)
                if row.depth < Depth.TABLES:
                    is_rejected = any(map(found.rejects, self.builds))
                    is_done &= not (may_be_independent and is_rejected)
                elif not may_be_independent:
                    is_done |= not found.runs_with(context.builds or self.builds)
                yield found
                if found.is_settled or is_done:
                    break

    def assess(
        self,
        wheel: Wheel,
        rows: Mapping[str, WheelRow],
        context: Context,
    ) -> Compatibility:
        """Compute a wheel's compatibility with each build from its facts."""
        of_gpus = {build: assess_gpus(row, self.gpus) for build, row in rows.items()}
        verdicts = {}
        for build, one in of_gpus.items():
            why = reject_build(
                rows[build],
                one.rejection,
                self.builds[build],
                versions=context.versions,
                environment=self.environment,
            )
            verdicts[build] = BuildVerdict(rows[build], why, one.warning)
        [(best, row), *_] = rows.items()
        required = [
            one for one in row.requirements() if one.applies_in(self.environment)
        ]
        found = Compatibility(
            wheel,
            verdicts,
            self.allowed_builds(required),
            unusable=of_gpus[best].rejection,
            is_settled=all(one.is_settled for one in of_gpus.values()),
        )
        if not found.runs_with(self.builds):
            found = allow_other_library(found)
        opened = find_missing_packages(row, context.versions)
        if not found.unusable and not found.compatible_builds:
            is_alone = not row.torch.is_linked and "torch" not in requirement_names(
                required
            )
            is_older = needs_older_cuda(row, self.builds[best])
            if opened or (is_alone and is_older):
                return allow_own_cuda(found, opened)
        undeclared = find_undeclared_packages(row, context.linked)
        if not undeclared:
            return found
        why = Reason(
            "undeclared", "is linked to libraries that its METADATA does not declare"
        )
        return replace(found, adds=undeclared, why_adds=why)

    def allowed_builds(self, requirements: Iterable[Requirement]) -> frozenset[str]:
        """Return the builds of torch that METADATA requirements allow."""
        of_torch = [one for one in requirements if one.name == "torch"]
        return frozenset(
            version
            for version, build in self.builds.items()
            if all(one.allows(build.torch) for one in of_torch)
        )
