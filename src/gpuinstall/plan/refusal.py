"""Why no build fits, in one sentence that names the two that disagree, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.backend import CPU
from gpuinstall.plan.candidates import NoCandidate, closest, codes_of
from gpuinstall.plan.companions import shared_pythons
from gpuinstall.plan.gpus import NO_BUILD_FITS, NO_SOURCE_ANSWERS, ONLY_REPAIR_HELPS, never_made, refused
from gpuinstall.plan.python import number, span
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import Plan, Reason, Refusal, Rejection
from gpuinstall.vendors.protocol import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuinstall.plan.context import PlanContext
    from gpuinstall.plan.demand import Demand
    from gpuinstall.request import Request

    Attempt = Callable[[Request], Plan | Refusal | NoCandidate]


_CPU_BUILD = """\
Try again when the index of the CPU build is reachable, or use another: --backend cpu --torch-index https://index.example/whl
For a machine with GPUs elsewhere, use its backend, such as --backend cu126"""


def explained(unserved: NoCandidate, request: Request, attempt: Attempt) -> Refusal:
    """Refuse: for the machine's sake where no request would be served, else because of what was asked."""
    everything = [text for text in request.requirements if text != "torch"]  # what can stand in the way, in its words
    everything += [f"Python {request.python}"] if request.python else []
    everything += [f"backend {request.backend}"] if request.backend else []
    everything += [_allowed(request)] if request.allowed_backends is not None else []
    if unserved.context.demand.backends == {CPU}:
        request = replace(request, backend=CPU.tag)
        everything = [words for words in everything if words != f"backend {CPU}"]
    plainly = attempt(_weakened(request, frozenset(everything)))
    if isinstance(plainly, NoCandidate):
        return _machine_refused(plainly, unserved.rejected)
    culprits, conflict = _conflict(unserved, everything, request, attempt)
    nearest = closest(conflict.rejected, conflict.context.rules)
    reason = _disagreement(culprits, nearest, conflict.context)
    ways = [_way(nearest, conflict.context)] if nearest else []
    for words in culprits:
        otherwise = attempt(_weakened(request, frozenset({words})))
        if isinstance(otherwise, Plan):
            build, named = otherwise.choice.build, unserved.context.cuda_names.get(words)
            name = named.names.get(build.toolkit[0]) if named and build.toolkit else None
            change = f"with {name} in its place" if name else f"without {words}"
            ways.append(f"{change}: torch {build.name}, Python {otherwise.choice.python}")
    fix = "\n".join(way for way in ways if way)
    exit_code = NO_SOURCE_ANSWERS if reason.code == "unreachable" else NO_BUILD_FITS
    return refused(unserved.context, exit_code, (reason,), fix, left_out=unserved.left_out, rejected=unserved.rejected)


def _machine_refused(unserved: NoCandidate, rejected: tuple[Rejection, ...]) -> Refusal:
    context, rules = unserved.context, unserved.context.rules
    codes = ((rejection, codes_of(rejection.build, context)) for rejection in unserved.rejected)
    served = [rejection for rejection, of_gpus in codes if any(isinstance(code, Code) for code in of_gpus)]
    nearest = closest(served or unserved.rejected, rules)
    if nearest is None:
        kind = f"{rules.software} build" if context.gpus else "build"
        message = f"there is no {kind} of torch for {context.machine.os} {context.machine.arch}"
        reason = Reason("no-build-for-platform", message)
        return refused(context, NO_BUILD_FITS, (reason,), None, left_out=unserved.left_out)
    names = " and ".join(dict.fromkeys(gpu.label for gpu in context.gpus))
    exit_code = NO_SOURCE_ANSWERS if nearest.code == "unreachable" else NO_BUILD_FITS
    reason = Reason(nearest.code, f"no build fits this machine; {nearest.build.name}: {nearest.message}")
    if nearest.code == "unreachable":
        silent = f"the index of torch {nearest.build.name} cannot be reached"
        reason = Reason(nearest.code, f"{silent}, and no other source has a build that fits this machine")
    if nearest.code in rules.driver_reasons:
        exit_code = ONLY_REPAIR_HELPS
        reason = Reason(nearest.code, f"{rules.driver} is too old for every build for {names}: {nearest.message}")
    elif nearest.code in rules.code_reasons:
        reason = never_made(context.gpus[0], context)
    fix = _way(nearest, context)
    return refused(context, exit_code, (reason,), fix, left_out=unserved.left_out, rejected=rejected)


def _allowed(request: Request) -> str:
    return f"the allowed backends ({', '.join(request.allowed_backends or ())})"


def _weakened(request: Request, dropped: frozenset[str]) -> Request:
    """Take constraints out of a request; what torch is asked for becomes any torch."""
    kept = (text for text in request.requirements if text not in dropped or parse_requirement(text).name == "torch")
    return replace(
        request,
        requirements=tuple("torch" if text in dropped else text for text in kept),
        python=None if f"Python {request.python}" in dropped else request.python,
        backend=None if f"backend {request.backend}" in dropped else request.backend,
        allowed_backends=None if _allowed(request) in dropped else request.allowed_backends,
    )


def _conflict(
    unserved: NoCandidate, everything: list[str], request: Request, attempt: Attempt
) -> tuple[list[str], NoCandidate]:
    """Find a smallest part of the request that cannot be served, by leaving out whatever the failure does not need."""
    needed = list(everything)
    for words in everything:
        without = [other for other in needed if other != words]
        outcome = attempt(_weakened(request, frozenset(everything) - frozenset(without)))
        if isinstance(outcome, NoCandidate):
            needed, unserved = without, outcome
    return needed, unserved


def _disagreement(culprits: list[str], nearest: Rejection | None, context: PlanContext) -> Reason:
    sides = list(culprits)
    if len(sides) == 1:
        sides.append(_other_side(nearest, context))
    listed = f"{', '.join(sides[:-1])} and {sides[-1]}"
    if nearest is None or nearest.code in {"other-torch", "other-backend", "other-cuda"}:
        return Reason(nearest.code if nearest else "no-build", f"{listed} are incompatible: no build has it")
    return Reason(nearest.code, f"{listed} are incompatible: {nearest.build.name}: {nearest.message}")


def _other_side(nearest: Rejection | None, context: PlanContext) -> str:
    if nearest is None:
        return f"{context.machine.os} {context.machine.arch}"
    if nearest.code in context.rules.driver_reasons:
        return context.rules.driver
    if nearest.code in context.rules.code_reasons:
        return " with ".join(dict.fromkeys(gpu.label for gpu in context.gpus))
    if nearest.code == "no-companion" and nearest.build.source:
        return "the versions in the sources"
    sides = {"glibc-too-old": f"glibc {context.machine.glibc}", "no-python": "the installed Pythons"}
    return sides.get(nearest.code, f"the catalogue of {context.catalog.date}")


def _way(nearest: Rejection, context: PlanContext) -> str | None:
    build = nearest.build
    if build.backend == CPU and nearest.code in NOT_THERE:
        return _CPU_BUILD
    if fix := context.rules.driver_fix(build, nearest.code, context.gpus):
        return fix
    if nearest.code == "python-unsupported":
        python = _nearest_python(shared_pythons(build, context), context.demand)
        return f"Use Python {python}: --python {python}" if python else None
    ways = {
        "unreachable": "Try again when its index is reachable, or use a mirror: --torch-index https://index.example/whl",
        "glibc-too-old": f"Use a distribution or a container with glibc {build.glibc} or newer",
        "no-python": f"Install Python {span(build.pythons)}",
    }
    return ways.get(nearest.code)


def _nearest_python(pythons: Sequence[str], demand: Demand) -> str | None:
    """Of the Pythons that would do, the one nearest to what was asked for."""
    texts = [demand.python] if isinstance(demand.python, str) else [part.version for part in demand.python or ()]
    minors = [number(text.removesuffix(".*"))[1] for text in texts if re.match(r"3\.[0-9]", text)]
    wheels = [python for python in pythons if not python.endswith("t")]

    def distance(python: str) -> tuple[int, tuple[int, ...]]:
        return min((abs(number(python)[1] - minor) for minor in minors), default=0), number(python)

    return min(wheels, key=distance, default=None)
