"""Find facts about torch's companions, which its build determines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuinstall.base.requirement import Constraint, Requirement
from gpuinstall.catalog import COMPANIONS
from gpuinstall.lock.resolve.facts import Answer, Fact
from gpuinstall.plan.companions import Companions

if TYPE_CHECKING:
    from packaging.version import Version

    from gpuinstall.catalog import Wheel
    from gpuinstall.lock.resolve.lane import Lane


def find_companion_facts(answer: Answer, lane: Lane) -> Iterator[Fact]:
    """Yield the compatible builds of torch-family packages, as facts.

    Packages that are compatible with the selected build are omitted.
    """
    for wheel in answer.wheels:
        package = wheel.package
        if package == "torch" or answer.torch in _find_paired_builds(wheel, lane):
            continue
        for other in lane.releases.find_wheels(package):
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


def find_violated_constraints(
    answer: Answer, lane: Lane
) -> Iterator[tuple[Version, Constraint]]:
    """Yield constraints of torch that METADATA omits and uv violated."""
    torch = answer.build.torch
    for constraint in lane.question.catalog.constraints(torch):
        version = answer.versions.get(constraint.name)
        if version and not constraint.allows(version):
            yield torch, constraint
