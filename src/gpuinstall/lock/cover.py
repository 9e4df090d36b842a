"""The fewest locks for recorded machines, or for a range: ``lock cover --gpu "RTX 30" --driver ">=470"``."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpuinstall.base.errors import NoBuildError, UsageError
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog.gpus import card_capabilities, series_of
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.solve.live import live_requests
from gpuinstall.lock.solve.loop import Loop
from gpuinstall.lock.solve.problem import Requests, common_torches, pose_together
from gpuinstall.lock.uv.errors import Conflict
from gpuinstall.machine.words import gpu_in_words
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.cover import ServingBuild, best_cover, serving_builds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from packaging.version import Version

    from gpuinstall.base.request import Request
    from gpuinstall.catalog import Build, Catalog
    from gpuinstall.sources.session import Session


class RangeCover(Value):
    """The fewest locks for a range, and the machines that none can serve."""

    requests: tuple[LockRequest, ...]
    """A lock each, with the machines that it serves, for the newest torch that they have, or with programs an older one."""

    unserved: tuple[Machine, ...]


def machines_in(
    names: Sequence[str],
    drivers: str | None,
    arch: str,
    catalog: Catalog,
) -> list[Machine]:
    """Return a Linux machine for each GPU under each driver branch; for a GPU whose builds ask for no driver, one.

    Args:
        names: Of GPUs or of series (``RTX 30``).
        drivers: A range of branches, ``>=470``, or one, ``570``; None: all.
        arch: The processor's architecture.
        catalog: What is known of GPUs and drivers.

    Raises:
        UsageError: A name or the range is malformed.
    """
    branches = _branches(drivers or "", catalog)
    machines: list[Machine] = []
    for gpu in _gpus(names, catalog):
        drivers_of_gpu = branches if gpu.compute_capability else [None]
        machines += [
            Machine("linux", arch, driver=driver, gpus=(gpu,))
            for driver in drivers_of_gpu
        ]
    return machines


def _branches(drivers: str, catalog: Catalog) -> list[Driver]:
    if drivers.isdigit():
        drivers = f"=={drivers}"
    try:
        specifiers = SpecifierSet(drivers)
    except InvalidSpecifier:
        raise UsageError(
            "driver-malformed",
            f"{drivers!r} is not a range of driver branches",
            hint="gpuinstall lock cover --gpu 'RTX 30' --driver '>=525,<590'",
        ) from None
    return [
        Driver(version, found_via="words")
        for version in catalog.drivers.versions
        if str(version) in specifiers
    ]


def _gpus(names: Sequence[str], catalog: Catalog) -> Iterator[Gpu]:
    """Yield each GPU once by the code that it runs, under the names that were given."""
    series = {}
    for capability in card_capabilities(catalog.drivers):
        for name in series_of(str(capability)):
            series[name.lower()] = capability
    for name in names:
        of_series = series.get(name.lower())
        if of_series:
            yield Gpu(0, name, compute_capability=of_series, found_via="words")
        else:
            yield gpu_in_words(name)


def spanned(machines: Iterable[Machine]) -> str:
    """Return the GPUs and the drivers of machines: ``RTX 30, A800 with driver 525–575``."""
    drivers: dict[str, list[str]] = defaultdict(list)
    for machine in machines:
        version = machine.driver.version if machine.driver else ""
        drivers[machine.gpus[0].label].append(str(version))
    gpus: dict[str, list[str]] = defaultdict(list)
    for name, versions in drivers.items():
        ends = dict.fromkeys((versions[0], versions[-1]))
        gpus["–".join(ends)].append(name)
    spans = []
    for span, names in gpus.items():
        under = f" with driver {span}" if span else ""
        spans.append(f"{', '.join(names)}{under}")
    return "; ".join(spans)


def cover_range(
    machines: Sequence[Machine],
    request: Request,
    catalog: Catalog,
) -> RangeCover:
    """Return the fewest locks that serve every machine that any build runs on.

    Each machine gets the newest torch that it would have alone, unless a target then had two: a folder holds one lock
    for each target.
    """
    plans = [choose(machine, request, catalog) for machine in machines]
    served = [position for position, plan in enumerate(plans) if isinstance(plan, Plan)]
    # First for the newest torch of each machine: a folder cannot hold two locks for one target.
    newest = map(_of_newest_torch, plans)
    cover = best_cover(serving_builds(newest), served)
    if len({_target_of(serving.build) for serving in cover}) < len(cover):
        cover = best_cover(serving_builds(plans), served)
    members: dict[ServingBuild, list[Machine]] = defaultdict(list)
    for position in served:
        fitting = [serving for serving in cover if position in serving.ranks]
        best = max(fitting, key=lambda one: (one.build.torch, -one.ranks[position]))
        members[best].append(machines[position])
    requests = []
    for serving in sorted(members, key=lambda one: one.build.torch, reverse=True):
        build = serving.build
        served_here = tuple(members[serving])
        one = LockRequest.for_target(_target_of(build), request, catalog, served_here)
        requests.append(replace(one, newest_torch=build.torch))
    unserved = [
        machine
        for machine, plan in zip(machines, plans, strict=True)
        if isinstance(plan, Rejected)
    ]
    return RangeCover(tuple(requests), tuple(unserved))


def _target_of(build: Build) -> Target:
    return Target(build.backend.tag, build.os, build.arch)


def _of_newest_torch(plan: Plan | Rejected) -> Plan | Rejected:
    """Return a plan with the builds of the newest torch alone."""
    if isinstance(plan, Rejected):
        return plan
    torch = plan.choice.build.torch
    return replace(
        plan, runnable=tuple(build for build in plan.runnable if build.torch == torch)
    )


Served = dict[Target, frozenset[int]]
"""The machines, by their positions, that each target serves."""


def targets_for(requests: Requests, newest: Version | None = None) -> Served:
    """Return the fewest targets for the newest torch that every machine can have, or for one that is older.

    Raise MachineError or NoBuildError if a machine can have none, or no torch serves them all.
    """
    candidates = serving_builds([request.outcome for request in requests])
    for torch in common_torches(requests):
        if newest and torch > newest:
            continue
        of_torch = [one for one in candidates if one.build.torch == torch]
        cover = best_cover(of_torch, range(len(requests)))
        if cover:
            return {_target_of(one.build): frozenset(one.ranks) for one in cover}
    raise NoBuildError(
        "machines-disagree",
        "no torch version runs on all machines",
        hint="Lock them separately",
    )


def targets_with_programs(requests: Requests, session: Session) -> Served:
    """Return the fewest targets for the torch that the programs require of those that every machine can have.

    Raise NoBuildError too, if they require none of them.
    """
    served = targets_for(requests)
    if not requests[0].names_programs:
        return served
    live, unreachable = live_requests(requests, session)
    if unreachable:
        return served
    answer = Loop(pose_together(live)[0], session).run()
    if isinstance(answer, Conflict):
        raise answer.error
    return targets_for(live, answer.build.torch)
