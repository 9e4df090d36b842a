"""Create the resolver inputs of locks, with a common Python and torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.lock.file.target import parse_minor
from gpuinstall.lock.request.lock_request import LockRequest, plan_or_raise
from gpuinstall.lock.resolve.resolver_input import (
    Alternative,
    Requests,
    ResolverInput,
    remove_backend_labels,
)
from gpuinstall.plan import Plan
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.values import HELD_BACK

PER_TARGET = "Set per-target = true in [tool.gpuinstall] to select the newest torch for each target"

if TYPE_CHECKING:
    from packaging.version import Version
TARGETS_DISAGREE = "targets-disagree"


def create_input(lock_request: LockRequest, plan: Plan) -> ResolverInput:
    """Return the resolver input for one lock file.

    For a request with only torch-family packages, the plan determines the build.
    Otherwise, uv may select any build that runs.
    """
    choice = plan.choice
    resolver_input = ResolverInput(
        lock_request, plan, (choice.build,), choice.requirements
    )
    if not resolver_input.is_open:
        return resolver_input
    family = lock_request.catalog.family
    return replace(
        resolver_input,
        builds=plan.runnable or resolver_input.builds,
        requirements=tuple(
            remove_backend_labels(one, family)
            for one in lock_request.request.requirements
        ),
    )


def create_inputs(
    requests: Requests, alternative: Alternative | None = None
) -> list[ResolverInput]:
    """Return a resolver input for each target, with a common Python.

    Args:
        requests: The request for each target.
        alternative: The torch and Python to select if all targets support them.

    Raises:
        MachineError: A machine can run no build.
        NoBuildError: No build is compatible, or the targets have no common torch.
    """
    alternative = alternative or Alternative()
    first = requests[0]
    torches: list[Version | None] = [None]
    pythons: list[str | None]
    if len(requests) == 1:
        torches = [*dict.fromkeys((alternative.torch, None))]
        pythons = [*dict.fromkeys((alternative.python, None))]
    else:
        pythons = [
            *sorted(_list_pythons(requests), key=lambda one: one != alternative.python)
        ]
        if not first.request.newest_per_target:
            common = find_common_torch_versions(requests)
            torches = [*sorted(common, key=lambda one: one != alternative.torch)]
    for torch, python in product(torches, pythons):
        outcomes = [one.choose_build(torch=torch, python=python) for one in requests]
        plans = [one for one in outcomes if isinstance(one, Plan)]
        if len(plans) == len(requests):
            resolver_inputs = _create_with_python(requests, plans, python)
            return [
                resolver_input.with_alternative(alternative)
                for resolver_input in resolver_inputs
            ]
    # A target without any build raises its own error here.
    available = [
        f"{one.label}: torch {_format_torch_versions(one)}" for one in requests
    ]
    raise NoBuildError(
        TARGETS_DISAGREE,
        "no torch version is available for all targets",
        evidence=" · ".join(available),
        hint=PER_TARGET,
    )


def _format_torch_versions(request: LockRequest) -> str:
    """List the torch versions that run on a target, latest first."""
    torches = {build.torch for build in request.plan.runnable}
    return join_names([str(torch) for torch in sorted(torches, reverse=True)])


def find_common_torch_versions(requests: Requests) -> list[Version]:
    """Return the torch versions that run on all targets, latest first."""
    torches = [{build.torch for build in one.plan.runnable} for one in requests]
    return sorted(set.intersection(*torches), reverse=True)


def _list_pythons(requests: Requests) -> list[str]:
    """Return the Python versions to try for all targets, in order.

    If the request has only one Python version, only this version is tried. Otherwise,
    the preferred versions are first, then the catalog's default, then the others from
    latest to oldest.
    """
    first = requests[0]
    demand = parse_request(first.request, first.catalog.family, first.machine)
    if len(demand.pythons) == 1:
        return [*demand.pythons]
    released = {
        python
        for request in requests
        for build in request.plan.runnable
        for python in build.pythons
    }
    pythons = [*first.request.preferred_pythons, first.catalog.settled_python]
    pythons += sorted(released, key=parse_minor, reverse=True)
    return list(dict.fromkeys(filter(demand.pythons.__contains__, pythons)))


def _create_with_python(
    requests: Requests,
    plans: Sequence[Plan],
    python: str | None,
) -> list[ResolverInput]:
    """Return the resolver inputs for one Python version.

    Args:
        requests: The request for each target.
        plans: The plan of each target.
        python: The ``X.Y`` version for all targets; None if each target has its own.
    """
    first = requests[0]
    is_shared = len(requests) > 1 and first.has_programs
    if is_shared:
        plans = [
            plan_or_raise(one.choose_build(python=python), one.machine)
            for one in requests
        ]
    resolver_inputs = [
        create_input(one, plan) for one, plan in zip(requests, plans, strict=True)
    ]
    if not is_shared or first.request.newest_per_target:
        return resolver_inputs
    common = frozenset.intersection(
        *(resolver_input.torches for resolver_input in resolver_inputs)
    )
    limiting = next(iter(find_limiting_targets(requests, max(common))), "all targets")
    return [
        replace(
            one.with_torch_versions(common),
            common=max(common),
            limiting_target=limiting,
        )
        for one in resolver_inputs
    ]


def explain_limiting_targets(requests: Requests, chosen: Version) -> list[Reason]:
    """Return the targets that do not support a later torch, as reasons."""
    first = requests[0]
    # If there are programs, each resolution reports its own limiting target.
    is_reported = len(requests) > 1 and first.has_programs
    if is_reported or first.request.newest_per_target:
        return []
    return [
        Reason(
            HELD_BACK,
            f"{format_newest(name, chosen)}; the other targets support torch {torch}",
        )
        for name, torch in find_limiting_targets(requests, chosen).items()
    ]


def format_newest(name: str, torch: Version) -> str:
    """Return a message that a torch version is the latest for a target."""
    return f"torch {torch} is the newest for {name}"


def find_limiting_targets(requests: Requests, chosen: Version) -> dict[str, Version]:
    """Return targets that limit torch, and the latest torch for the others."""
    torches = {
        one.label: {build.torch for build in one.plan.runnable} for one in requests
    }
    if len(torches) == 1 or chosen < max(set.intersection(*torches.values())):
        return {}
    found: dict[str, Version] = {}
    for name in torches:
        others = [torches[other] for other in torches if other != name]
        without = max(set.intersection(*others))
        if without > chosen:
            found[name] = without
    return found
