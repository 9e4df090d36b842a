"""Why no build fits, in one sentence that names the two that disagree, and what to do about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.catalog.build import CPU
from gpuinstall.plan.candidates import NO_CODE, NO_DRIVER, NoCandidate, closest, codes_of
from gpuinstall.plan.code import Code
from gpuinstall.plan.faults import (
    NO_BUILD_FITS,
    NO_SOURCE_ANSWERS,
    ONLY_MENDING_HELPS,
    last_branch,
    never_made,
    refused,
)
from gpuinstall.plan.python import number, span
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.values import Plan, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuinstall.plan.case import PlanContext
    from gpuinstall.plan.values import Rejection
    from gpuinstall.request import Request
    from gpuinstall.versions import DriverVersion


def explained(stuck: NoCandidate, request: Request, attempt: Callable[[Request], Plan | NoCandidate]) -> Plan:
    """Refuse: for the machine's sake where no request would be served, else because of what was asked."""
    everything = _constraints(request)
    if stuck.case.demand.backends == {CPU}:
        request = replace(request, backend=CPU)
        everything = [words for words in everything if words != f"backend {CPU}"]
    plainly = attempt(_weakened(request, frozenset(everything)))
    if isinstance(plainly, NoCandidate):
        return _machine_refused(plainly, stuck.rejected)
    culprits, conflict = _conflict(stuck, everything, request, attempt)
    nearest = closest(conflict.rejected)
    reason = _disagreement(culprits, nearest, conflict.case)
    ways = [_way(nearest, conflict.case)] if nearest else []
    for words in culprits:
        otherwise = attempt(_weakened(request, frozenset({words})))
        if isinstance(otherwise, Plan) and otherwise.choice:
            ways.append(f"without {words}: torch {otherwise.choice.build.name}, Python {otherwise.choice.python}")
    fix = "\n".join(way for way in ways if way)
    exit_code = NO_SOURCE_ANSWERS if reason.code == "unreachable" else NO_BUILD_FITS
    return refused(stuck.case, exit_code, (reason,), fix, left_out=stuck.left_out, rejected=stuck.rejected)


def _machine_refused(stuck: NoCandidate, rejected: tuple[Rejection, ...]) -> Plan:
    case = stuck.case
    served = [found for found in stuck.rejected if any(isinstance(code, Code) for code in codes_of(found.build, case))]
    nearest = closest(served or stuck.rejected)
    if nearest is None:
        kind = "CUDA build" if case.gpus else "build"
        message = f"there is no {kind} of torch for {case.machine.os} {case.machine.arch}"
        return refused(case, NO_BUILD_FITS, (Reason("no-build-for-platform", message),), None, left_out=stuck.left_out)
    names = " and ".join(dict.fromkeys(gpu.label for gpu in case.gpus))
    exit_code = _EXIT_CODES.get(nearest.code, NO_BUILD_FITS)
    reason = Reason(nearest.code, f"no build fits this machine; {nearest.build.name}: {nearest.message}")
    if nearest.code in NO_DRIVER:
        reason = Reason(nearest.code, f"{case.driver} is too old for every build for {names}: {nearest.message}")
    elif nearest.code in NO_CODE:
        reason = never_made(case.gpus[0], case)
    fix = _way(nearest, case)
    return refused(case, exit_code, (reason,), fix, left_out=stuck.left_out, rejected=rejected)


_EXIT_CODES = {"unreachable": NO_SOURCE_ANSWERS, **dict.fromkeys(NO_DRIVER, ONLY_MENDING_HELPS)}


def _constraints(request: Request) -> list[str]:
    """Name everything in a request that can stand in the way, in the words of the request."""
    words = [text for text in request.requirements if text != "torch"]
    words += [f"Python {request.python}"] if request.python else []
    words += [f"backend {request.backend}"] if request.backend else []
    return words + ([_allowed(request)] if request.allowed_backends is not None else [])


def _allowed(request: Request) -> str:
    return f"the allowed backends ({', '.join(request.allowed_backends or ())})"


def _weakened(request: Request, dropped: frozenset[str]) -> Request:
    """Take constraints out of a request; what torch is asked for becomes any torch."""
    kept = (_bare(text) if text in dropped else text for text in request.requirements)
    return replace(
        request,
        requirements=tuple(text for text in kept if text),
        python=None if f"Python {request.python}" in dropped else request.python,
        backend=None if f"backend {request.backend}" in dropped else request.backend,
        allowed_backends=None if _allowed(request) in dropped else request.allowed_backends,
    )


def _bare(text: str) -> str:
    return "torch" if parse_requirement(text).name == "torch" else ""


def _conflict(
    stuck: NoCandidate, everything: list[str], request: Request, attempt: Callable[[Request], Plan | NoCandidate]
) -> tuple[list[str], NoCandidate]:
    """Find a smallest part of the request that cannot be served, by leaving out whatever the failure does not need."""
    needed = list(everything)
    for words in everything:
        without = [other for other in needed if other != words]
        outcome = attempt(_weakened(request, frozenset(everything) - frozenset(without)))
        if isinstance(outcome, NoCandidate):
            needed, stuck = without, outcome
    return needed, stuck


def _disagreement(culprits: list[str], nearest: Rejection | None, case: PlanContext) -> Reason:
    sides = list(culprits)
    if len(sides) == 1:
        sides.append(_other_side(nearest, case))
    listed = f"{', '.join(sides[:-1])} and {sides[-1]}"
    if nearest is None or nearest.code in {"other-torch", "other-backend"}:
        return Reason(nearest.code if nearest else "no-build", f"{listed} disagree: no build has it")
    return Reason(nearest.code, f"{listed} disagree: {nearest.build.name}: {nearest.message}")


def _other_side(nearest: Rejection | None, case: PlanContext) -> str:
    if nearest is None:
        return f"{case.machine.os} {case.machine.arch}"
    if nearest.code in NO_DRIVER:
        return case.driver
    if nearest.code in NO_CODE:
        return " with ".join(dict.fromkeys(gpu.label for gpu in case.gpus))
    sides = {"glibc-too-old": f"glibc {case.machine.glibc}", "no-python": "the Pythons at hand"}
    return sides.get(nearest.code, f"the catalogue of {case.catalog.date}")


def _way(nearest: Rejection, case: PlanContext) -> str | None:
    build = nearest.build
    if build.toolkit and nearest.code == "driver-too-old":
        return _driver_update(case.floors[build.toolkit.major], case)
    if build.toolkit and nearest.code == "driver-too-old-for-ptx":
        branches = case.catalog.drivers.branches
        return (
            f"update the NVIDIA driver to {next(branch for branch, cuda in branches if cuda >= build.toolkit)} or newer"
        )
    if nearest.code == "python-unsupported":
        return f"use Python {min(build.pythons, key=number)}: --python {min(build.pythons, key=number)}"
    ways = {
        "unreachable": "try again when its index can be reached, or name a mirror: --torch-index https://index.example/whl",
        "glibc-too-old": f"use a distribution or a container with glibc {build.glibc} or newer",
        "no-python": f"install Python {span(build.pythons)}",
    }
    return ways.get(nearest.code)


def _driver_update(floor: DriverVersion, case: PlanContext) -> str:
    last = last_branch(case)
    return f"update the NVIDIA driver to {floor} or newer" + (f", up to {last}" if last else "")
