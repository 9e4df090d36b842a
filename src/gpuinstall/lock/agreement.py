"""A plan and a resolution that agree: where another package demands a torch of its own, choose again with that one."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpuinstall.catalog.build import DEFAULT_INDEX
from gpuinstall.errors import GpuInstallError, InternalError, MachineError, NoBuildError
from gpuinstall.lock.draft import Draft, Family, draft
from gpuinstall.lock.project import Project
from gpuinstall.lock.resolution import ConflictError, Resolver
from gpuinstall.lock.target import GLIBC, Target
from gpuinstall.plan import choose

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.pages import Wheel
    from gpuinstall.lock.means import Means
    from gpuinstall.machine import Machine
    from gpuinstall.plan import Plan
    from gpuinstall.plan.values import Choice
    from gpuinstall.request import Request

TRIES = 3


@dataclass(frozen=True)
class Agreement:
    """A plan, its choice, and the resolution of what it chose."""

    plan: Plan
    choice: Choice
    draft: Draft


def agree(machine: Machine, request: Request, catalog: Catalog, means: Means) -> Agreement:
    """Choose and resolve; raise MachineError or NoBuildError where nothing fits, InstallationError where uv fails."""
    for remaining in reversed(range(TRIES)):
        plan = choose(machine, request, catalog)
        choice = chosen(plan)
        target = target_for(choice, machine)
        try:
            return Agreement(plan, choice, _drafted(choice, target, catalog, means))
        except ConflictError:
            demand = demanded_torch(request.requirements, choice.python, target, means) if remaining else None
            if demand is None or demand[0] == str(choice.build.torch):
                raise
            means.reporter.step("Build", f"{' and '.join(demand[1]) or 'a package'} demands torch {demand[0]}")
            request = replace(request, requirements=pinned(request.requirements, demand[0]))
    raise InternalError("disagreement", "the choice and the resolution did not agree")


def chosen(plan: Plan) -> Choice:
    """The choice of a plan; raise what a refused one says."""
    if plan.choice is not None:
        return plan.choice
    raise refusal(plan)


def refusal(plan: Plan) -> GpuInstallError:
    """The error that a refused plan is."""
    first, *more = plan.reasons
    kind = MachineError if plan.exit_code == MachineError.exit_code else NoBuildError
    why = "\n".join(reason.message for reason in more) or None
    return kind(first.code, first.message, why=why, hint=plan.fix, data={"plan": plan.to_dict()})


def target_for(choice: Choice, machine: Machine) -> Target:
    """What a lock of a choice is for; its glibc is old enough for every machine that runs the build."""
    glibc = min((GLIBC, machine.glibc or GLIBC), key=lambda version: [int(part) for part in version.split(".")])
    return Target(choice.build.backend, machine.os, machine.arch, glibc)


def demanded_torch(
    requirements: tuple[str, ...], python: str, target: Target, means: Means
) -> tuple[str, tuple[str, ...]] | None:
    """Ask which torch the other packages agree on, and who demands it: the default index alone is asked."""
    others = tuple(text for text in requirements if _name(text) != "torch")
    with tempfile.TemporaryDirectory(prefix="gpuinstall-") as folder:
        resolver = Resolver(Path(folder), means.python, means.environment, (), lambda _package: ())
        return resolver.demands(Project(others, python, {}), target)


def pinned(requirements: tuple[str, ...], torch: str) -> tuple[str, ...]:
    """Replace what is asked of torch by one version."""
    extras = sorted(set().union(*(Requirement(text).extras for text in requirements if _name(text) == "torch")))
    wanted = f"torch[{','.join(extras)}]" if extras else "torch"
    return (f"{wanted}=={torch.partition('+')[0]}", *(text for text in requirements if _name(text) != "torch"))


def _drafted(choice: Choice, target: Target, catalog: Catalog, means: Means) -> Draft:
    return draft(choice.requirements, target, choice.python, _family(choice, catalog, means), means)


def _family(choice: Choice, catalog: Catalog, means: Means) -> Family:
    from gpuinstall.catalog.listing import family_wheels

    def wheels(package: str) -> tuple[Wheel, ...]:
        if choice.index is None:
            return ()
        found = family_wheels(means.sources, means.client, choice.build.backend, package)
        return tuple(wheel for wheel in found if wheel.source != DEFAULT_INDEX)

    return Family(catalog.family, wheels, _published)


def _published() -> Mapping[str, str]:
    from gpuinstall.catalog.loader import read_data

    return {row["file"]: row["sha256"] for row in read_data("hashes.toml")["wheels"]}


def _name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)
