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

    from gpuinstall.catalog import Build
    from gpuinstall.plan.context import PlanContext
    from gpuinstall.plan.demand import Demand
    from gpuinstall.request import Request

    Attempt = Callable[[Request], Plan | Refusal | NoCandidate]


_TABLE = "gpuinstall table   # which PyTorch runs on which GPU and driver"
CPU_INSTEAD = "the same with --backend cpu   # the CPU build instead"
_CPU_BUILD = """\
Try again when the index of the CPU build is reachable, or use another: --backend cpu --torch-index https://index.example/whl
For a machine with GPUs elsewhere, use its backend, such as --backend cu126"""


def explained(unserved: NoCandidate, request: Request, attempt: Attempt) -> Refusal:
    """Refuse: because of the machine if no request would be served, else because of what was requested."""
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
            choice = otherwise.choice
            change = _change(words, choice.build, request, unserved.context)
            ways.append(f"{change}   # torch {choice.build.name}, Python {choice.python}")
    fix = "\n".join(way for way in ways if way)
    exit_code = NO_SOURCE_ANSWERS if reason.code == "unreachable" else NO_BUILD_FITS
    return refused(unserved.context, exit_code, (reason,), fix, left_out=unserved.left_out, rejected=unserved.rejected)


def with_cpu_build(refusal: Refusal, request: Request, attempt: Attempt) -> Refusal:
    """Advise the CPU build last, on a machine with GPUs, if there is one for this very request."""
    if not refusal.gpus or request.is_for_cpu:
        return refusal
    for_cpu = attempt(replace(request, backend=CPU.tag))
    if isinstance(for_cpu, Plan) and for_cpu.choice.build.backend == CPU:
        return replace(refusal, fix="\n".join(filter(None, (refusal.fix, CPU_INSTEAD))))
    return replace(refusal, fix=refusal.fix or _TABLE)


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


def _change(words: str, build: Build, request: Request, context: PlanContext) -> str:
    """Say how to request ``build`` by taking back ``words``, which stand in its way."""
    if words == f"Python {request.python}":
        return f"the same without --python {request.python}"
    if words == f"backend {request.backend}":
        return f"the same without --backend {request.backend}"
    if words == _allowed(request):
        return f"Without {words}"
    if named := context.cuda_names.get(words):
        other = named.names.get(build.toolkit[0]) if build.toolkit else None
        if other:
            return f"the same with {other} in place of {words}"
    if parse_requirement(words).name == "torch":
        return f"the same with torch in place of {words}"
    return f"the same without {words}"


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
    """Say what cannot be had together, or what cannot be had at all."""
    code, cause = "no-build", ""
    if nearest:
        code = nearest.code
    if nearest and code not in {"other-torch", "other-backend", "other-cuda"}:
        cause = f"{nearest.build.name}: {nearest.message}"
    side = _other_side(nearest, context) if nearest else None
    if len(culprits) == 1 and side is None:
        (culprit,) = culprits
        if cause:
            return Reason(code, f"no build of torch fits {culprit}; {cause}")
        return Reason(code, _unknown(culprit, context))
    sides = culprits if len(culprits) > 1 else [*culprits, str(side)]
    listed = f"{', '.join(sides[:-1])} and {sides[-1]}"
    return Reason(code, f"{listed} are incompatible: {cause or 'no build serves them'}")


def _unknown(culprit: str, context: PlanContext) -> str:
    """Say that something requested is not there, at all or for this platform."""
    platform = f"{context.machine.os} {context.machine.arch}"
    if culprit.startswith(("backend ", "Python ", "the allowed backends ")):
        return f"no build of torch is known for {culprit} on {platform}"
    if culprit in context.cuda_names:
        return f"{culprit} is for another CUDA than the builds of torch that run here"
    requirement = parse_requirement(culprit)
    newest = max((build.torch for build in context.catalog.builds), default=None)
    if any(requirement.allows(build.torch) for build in context.catalog.builds):
        return f"{culprit} has no build for {platform}"
    exact = re.fullmatch(r"==([\w.+!]+)", str(requirement.specifier))
    what = f"torch {exact[1]} does not exist" if exact else f"there is no {culprit}"
    return f"{what}; the newest is {newest} (as of {context.catalog.date})"


def _other_side(nearest: Rejection, context: PlanContext) -> str | None:
    """Return what of the machine or its sources a request disagrees with; None if it is the builds themselves."""
    if nearest.code in context.rules.driver_reasons:
        return context.rules.driver
    if nearest.code in context.rules.code_reasons:
        return " with ".join(dict.fromkeys(gpu.label for gpu in context.gpus))
    if nearest.code == "no-companion" and nearest.build.source:
        return "the versions in the sources"
    return f"glibc {context.machine.glibc}" if nearest.code == "glibc-too-old" else None


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
