"""Why no build fits, in one sentence that names the two that disagree, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.backend import CPU
from gpuinstall.errors import MachineError, NoBuildError
from gpuinstall.finding import Reason
from gpuinstall.plan.candidates import NoCandidate, closest, codes_of
from gpuinstall.plan.gpus import never_made, refused
from gpuinstall.plan.python import number, span
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import Plan, Rejected
from gpuinstall.vendors.protocol import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuinstall.catalog import Build
    from gpuinstall.errors import GpuInstallError
    from gpuinstall.finding import Rejection
    from gpuinstall.plan.context import PlanContext
    from gpuinstall.plan.demand import Demand
    from gpuinstall.request import Request

    Attempt = Callable[[Request], Plan | Rejected | NoCandidate]


_TABLE = "gpuinstall table   # which PyTorch runs on which GPU and driver"
CPU_INSTEAD = "the same with --backend cpu   # the CPU build instead"
_CPU_BUILD = """\
Try again when the index of the CPU build is reachable
the same with --backend cpu --torch-index https://index.example/whl   # another index that has it
the same with --backend cu126   # for a machine with GPUs elsewhere, whose backend it is"""
_MIRROR = """\
Try again when its index is reachable
the same with --torch-index https://index.example/whl   # a mirror of it"""


def explain(unserved: NoCandidate, request: Request, attempt: Attempt) -> Rejected:
    """Refuse: because of the machine if no request would be served, else because of what was requested.

    Args:
        unserved: What the request came to.
        request: The request.
        attempt: What another request would come to.
    """
    words = _constraints(request)
    if unserved.context.demand.backends == {CPU}:
        request = replace(request, backend=CPU.tag)
        words = [one for one in words if one != f"backend {CPU}"]
    plainly = attempt(_weakened(request, frozenset(words)))
    if isinstance(plainly, NoCandidate):
        return _refused_by_machine(plainly, unserved.rejected)
    culprits, conflict = _conflict(unserved, words, request, attempt)
    nearest = closest(conflict.rejected, conflict.context.rules)
    reason = _disagreement(culprits, nearest, conflict.context)
    ways = [_way(nearest, conflict.context)] if nearest else []
    for culprit in culprits:
        otherwise = attempt(_weakened(request, frozenset({culprit})))
        if isinstance(otherwise, Plan):
            choice = otherwise.choice
            change = _change(culprit, choice.build, request, unserved.context)
            ways.append(f"{change}   # torch {choice.build.name}, Python {choice.python}")
    fix = "\n".join(way for way in ways if way)
    return refused(unserved.context, (reason,), fix, rejected=unserved.rejected)


def with_cpu_build(refusal: Rejected, request: Request, attempt: Attempt) -> Rejected:
    """Advise the CPU build last, on a machine with GPUs, if there is one for this very request."""
    if not refusal.gpus or request.is_for_cpu:
        return refusal
    for_cpu = attempt(replace(request, backend=CPU.tag))
    if isinstance(for_cpu, Plan) and for_cpu.choice.build.backend == CPU:
        return replace(refusal, fix="\n".join(filter(None, (refusal.fix, CPU_INSTEAD))))
    return replace(refusal, fix=refusal.fix or _TABLE)


def _constraints(request: Request) -> list[str]:
    """Return what can stand in the way of a request, in its words."""
    words = [text for text in request.requirements if text != "torch"]
    if request.python:
        words.append(f"Python {request.python}")
    if request.backend:
        words.append(f"backend {request.backend}")
    if request.allowed_backends is not None:
        words.append(_allowed(request))
    return words


def _refused_by_machine(unserved: NoCandidate, rejected: tuple[Rejection[Build], ...]) -> Rejected:
    """Refuse what no request would be served on; ``rejected`` are the builds that the user's own came to."""
    context, rules = unserved.context, unserved.context.rules
    codes = ((rejection, codes_of(rejection.candidate, context)) for rejection in unserved.rejected)
    served = [
        rejection for rejection, of_gpus in codes if any(isinstance(code, Code) for code in of_gpus)
    ]
    nearest = closest(served or unserved.rejected, rules)
    if nearest is None:
        kind = f"{rules.software} build" if context.gpus else "build"
        message = f"there is no {kind} of torch for {context.machine.os} {context.machine.arch}"
        return refused(context, (Reason("no-build-for-platform", message),))
    build, (code, message) = nearest.candidate, nearest.reason
    error_class: type[GpuInstallError] = NoBuildError
    if code == "unreachable":
        silent = f"the index of torch {build.name} cannot be reached"
        reason = Reason(code, f"{silent}, and no other source has a build that fits this machine")
    elif code in rules.driver_reasons:
        error_class = MachineError
        names = " and ".join(dict.fromkeys(gpu.label for gpu in context.gpus))
        reason = Reason(code, f"{rules.driver} is too old for every build for {names}: {message}")
    elif code in rules.code_reasons:
        reason = never_made(context.gpus[0], context)
    else:
        reason = Reason(code, f"no build fits this machine; {build.name}: {message}")
    return refused(
        context, (reason,), _way(nearest, context), error_class=error_class, rejected=rejected
    )


def _change(words: str, build: Build, request: Request, context: PlanContext) -> str:
    """Return how to request ``build`` by taking back ``words``, which stand in its way."""
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
    """Return a request without constraints; what it requires of torch becomes any torch."""
    requirements = []
    for text in request.requirements:
        if text not in dropped:
            requirements.append(text)
        elif parse_requirement(text).name == "torch":
            requirements.append("torch")
    return replace(
        request,
        requirements=tuple(requirements),
        python=None if f"Python {request.python}" in dropped else request.python,
        backend=None if f"backend {request.backend}" in dropped else request.backend,
        allowed_backends=None if _allowed(request) in dropped else request.allowed_backends,
    )


def _conflict(
    unserved: NoCandidate, constraints: list[str], request: Request, attempt: Attempt
) -> tuple[list[str], NoCandidate]:
    """Return a smallest part of the request that cannot be served, without whatever the failure does not need."""
    needed = list(constraints)
    for words in constraints:
        without = [other for other in needed if other != words]
        outcome = attempt(_weakened(request, frozenset(constraints) - frozenset(without)))
        if isinstance(outcome, NoCandidate):
            needed, unserved = without, outcome
    return needed, unserved


def _disagreement(
    culprits: list[str], nearest: Rejection[Build] | None, context: PlanContext
) -> Reason:
    """Return what cannot be had together, or what cannot be had at all."""
    code, cause, side = "no-build", "", None
    if nearest:
        code = nearest.reason.code
        side = _other_side(nearest, context)
        if code not in {"other-torch", "other-backend", "other-cuda"}:
            cause = f"{nearest.candidate.name}: {nearest.reason.message}"
    if len(culprits) == 1 and side is None:
        (culprit,) = culprits
        if cause:
            return Reason(code, f"no build of torch fits {culprit}; {cause}")
        return Reason(code, _unknown(culprit, context))
    sides = culprits if len(culprits) > 1 else [*culprits, str(side)]
    listed = f"{', '.join(sides[:-1])} and {sides[-1]}"
    return Reason(code, f"{listed} are incompatible: {cause or 'no build serves them'}")


def _unknown(culprit: str, context: PlanContext) -> str:
    """Return that something requested is not there, at all or for this platform."""
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


def _other_side(nearest: Rejection[Build], context: PlanContext) -> str | None:
    """Return what of the machine or its sources a request disagrees with; None if it is the builds themselves."""
    code = nearest.reason.code
    if code in context.rules.driver_reasons:
        return context.rules.driver
    if code in context.rules.code_reasons:
        return " with ".join(dict.fromkeys(gpu.label for gpu in context.gpus))
    if code == "no-companion" and nearest.candidate.listed_at:
        return "the versions in the sources"
    return f"glibc {context.machine.glibc}" if code == "glibc-too-old" else None


def _way(nearest: Rejection[Build], context: PlanContext) -> str | None:
    build, code = nearest.candidate, nearest.reason.code
    if build.backend == CPU and code in NOT_THERE:
        return _CPU_BUILD
    if fix := context.rules.driver_fix(build, code, context.gpus):
        return fix
    if code == "python-unsupported":
        python = _nearest_python(context.companions.pythons(build), context.demand)
        return (
            f"the same with --python {python}   # a Python that it has wheels for"
            if python
            else None
        )
    ways = {
        "unreachable": _MIRROR,
        "glibc-too-old": f"Use a distribution or a container with glibc {build.glibc} or newer",
        "no-python": f"Install Python {span(build.pythons)}",
    }
    return ways.get(code)


def _nearest_python(pythons: Sequence[str], demand: Demand) -> str | None:
    """Return the Python nearest to what was requested of those that would do."""
    texts = (
        [demand.python]
        if isinstance(demand.python, str)
        else [part.version for part in demand.python or ()]
    )
    minors = [number(text.removesuffix(".*"))[1] for text in texts if re.match(r"3\.[0-9]", text)]
    wheels = [python for python in pythons if not python.endswith("t")]

    def distance(python: str) -> tuple[int, tuple[int, ...]]:
        return min((abs(number(python)[1] - minor) for minor in minors), default=0), number(python)

    return min(wheels, key=distance, default=None)
