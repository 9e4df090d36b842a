"""Why no build fits, in one sentence that names the two that disagree, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from gpuinstall.base.errors import GpuInstallError, MachineError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.request import ANY_TORCH, Request
from gpuinstall.base.requirement import NO_ORIGIN, Requirement, names_of
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU
from gpuinstall.catalog.catalog import Build
from gpuinstall.plan.candidates import JudgedBuild, NoCandidate, closest, rejections
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.gpus import never_made, refused
from gpuinstall.plan.python import span
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import Plan, Rejected

Attempt = Callable[[Request], Plan | Rejected | NoCandidate]


RELAX = "Run it again with --relax"
CPU_INSTEAD = "Run it again with --backend cpu: the CPU build instead"
OTHER_VERSIONS = "Request other versions, or none"
_CPU_BUILD = """\
Try again when the index of the CPU build is reachable
Run it again with --backend cpu --torch-index https://index.example/whl: another index that has it
Run it again with --backend cu126: for a machine with GPUs elsewhere, whose backend it is"""
_MIRROR = """\
Try again when its index is reachable
Run it again with --torch-index https://index.example/whl: a mirror of it"""


def explain(
    unserved: NoCandidate,
    request: Request,
    attempt: Attempt,
) -> Rejected:
    """Refuse: because of the machine if no request would be served, else because of what was requested.

    Args:
        unserved: What the request came to.
        request: The request.
        attempt: What another request would come to.
    """
    limits = limits_of(request, unserved.context.catalog.family)
    # Without torch==2.9.0+cpu its backend would be gone as well: who wants the CPU build is not told to take another.
    if unserved.context.demand.backends == {CPU}:
        request = replace(request, backend=CPU.tag)
        limits = [limit for limit in limits if limit.field != "backend"]
    unconstrained = attempt(without_limits(request, limits))
    if isinstance(unconstrained, NoCandidate):
        refusal = _refused_by_machine(unconstrained)
        return replace(refusal, rejected=rejections(unserved.rejected))
    culprits, conflict = _conflict(unserved, limits, request, attempt)
    nearest = closest(conflict.rejected, conflict.context.rules)
    fixes = [_fix(nearest, conflict.context)] if nearest else []
    if not request.relax:
        from gpuinstall.plan.relax import nearest_request

        relaxed = nearest_request(request, unserved.context.catalog, attempt)
        if relaxed:
            fixes.append(f"{RELAX}: torch {relaxed.torch}, the nearest that runs here")
    for culprit in culprits:
        outcome: object = attempt(without_limits(request, [culprit]))
        if culprit.field == "backend" and not unserved.context.gpus:
            # A platform may have builds for the CPU alone.
            other = _with_other_backend(request, unserved.context, attempt)
            outcome = other or outcome
        if isinstance(outcome, Plan):
            build = outcome.choice.build
            change = _change(culprit, build, unserved.context)
            fixes.append(
                f"{change}: torch {build.name}, Python {outcome.choice.python}"
            )
    return refused(
        unserved.context,
        (_disagreement(culprits, nearest, conflict.context),),
        "\n".join(filter(None, fixes)),
        rejected=rejections(unserved.rejected),
    )


def with_cpu_build(
    refusal: Rejected,
    request: Request,
    attempt: Attempt,
) -> Rejected:
    """Advise the CPU build last, on a machine with GPUs, if there is one for this very request and no near one.

    Args:
        refusal: What the request came to.
        request: The request.
        attempt: What another request would come to.
    """
    # A near request keeps the GPUs busy: the CPU build would be the worse advice beside it.
    if not refusal.gpus or request.is_for_cpu or RELAX in (refusal.fix or ""):
        return refusal
    for_cpu = attempt(replace(request, backend=CPU.tag))
    if isinstance(for_cpu, Plan) and for_cpu.choice.build.backend == CPU:
        fixes = filter(None, (refusal.fix, CPU_INSTEAD))
        return replace(refusal, fix="\n".join(fixes))
    return replace(refusal, fix=refusal.fix or OTHER_VERSIONS)


class Limit(Value):
    """A part of a request that can stand in its way."""

    field: str
    """The field of the request that has it."""
    value: str
    requirement: Requirement | None = None
    """The requirement or constraint; None for another field."""

    @property
    def words(self) -> str:
        """It as a refusal names it."""
        match self.field:
            case "python":
                return f"Python {self.value}"
            case "backend":
                return f"backend {self.value}"
            case "allowed_backends":
                return f"the allowed backends ({self.value or 'none'})"
        return self.value

    @property
    def place(self) -> str:
        """Its file in parentheses; empty: the user typed it."""
        origin = self.requirement.origin if self.requirement else NO_ORIGIN
        return f" ({origin})" if origin.is_in_file else ""

    @property
    def is_of_torch(self) -> bool:
        """Whether it limits torch itself."""
        return self.requirement is not None and self.requirement.name == "torch"


def limits_of(request: Request, family: Collection[str]) -> list[Limit]:
    """Return what can stand in the way of a request, among it the constraints on torch and on what it names of the family."""
    limits = [
        _limit("requirements", one) for one in request.requirements if one != ANY_TORCH
    ]
    concerned = {"torch", *names_of(request.requirements)} & {*family}
    limits += [
        _limit("constraints", one)
        for one in request.constraints
        if one.name in concerned
    ]
    if request.python:
        limits.append(Limit("python", request.python))
    if request.backend:
        limits.append(Limit("backend", request.backend))
    if request.allowed_backends is not None:
        limits.append(Limit("allowed_backends", ", ".join(request.allowed_backends)))
    return limits


def _limit(field: str, requirement: Requirement) -> Limit:
    return Limit(field, requirement.written or requirement.text, requirement)


def without_limits(request: Request, limits: Collection[Limit]) -> Request:
    """Return a request without some limits; what it requires of torch becomes any torch."""
    requirements = []
    for one in request.requirements:
        limit = _limit("requirements", one)
        if limit not in limits:
            requirements.append(one)
        elif limit.is_of_torch:
            requirements.append(ANY_TORCH)
    constraints = [
        one for one in request.constraints if _limit("constraints", one) not in limits
    ]
    single = {limit.field for limit in limits} - {"requirements", "constraints"}
    return replace(
        request,
        requirements=tuple(requirements),
        constraints=tuple(constraints),
        **dict.fromkeys(single),
    )


def _with_other_backend(
    request: Request,
    context: PlanContext,
    attempt: Attempt,
) -> Plan | None:
    """Return what another backend would give on machines with GPUs that this one, which has none, stands for.

    Args:
        request: The request.
        context: What it came to.
        attempt: What another request would come to.
    """
    builds = [one for one in context.builds if one.backend.kind == context.rules.kind]
    for tag in dict.fromkeys(build.backend.tag for build in builds):
        outcome = attempt(replace(request, backend=tag))
        if isinstance(outcome, Plan):
            return outcome
    return None


def _refused_by_machine(unserved: NoCandidate) -> Rejected:
    """Refuse what no request would be served on."""
    context = unserved.context
    rules = context.rules
    # What some GPU here has code for came closer than all that none has.
    served = [each for each in unserved.rejected if each.served_gpus]
    # Of what was not read nobody knows which code it has.
    read = [each for each in unserved.rejected if not each.build.unread]
    candidates = served or read or unserved.rejected
    nearest = closest(candidates, rules)
    if nearest is None or nearest.reason is None:
        kind = f"{rules.software} build" if context.gpus else "build"
        message = f"there is no {kind} of torch for {context.machine.os} {context.machine.arch}"
        return refused(context, (Reason("no-build-for-platform", message),))
    code, message = nearest.reason
    fix = _fix(nearest, context)
    if code in rules.code_reasons:
        fix = "\n".join(filter(None, (*rules.own_builds(), fix)))
        return refused(context, (never_made(context.gpus[0], context),), fix)
    error_class: type[GpuInstallError] = NoBuildError
    if code in rules.driver_reasons:
        error_class = MachineError
        too_old = f"{rules.driver} is too old for every build for {context.gpu_names}"
        message = f"{too_old}: {_least_demand(candidates, code)}"
    elif code == "unreachable":
        unreached = f"the index of torch {nearest.build.name} cannot be reached"
        message = f"{unreached}, and no other source has a build that fits this machine"
    else:
        message = f"no build fits this machine; {nearest.named_reason}"
    return refused(context, (Reason(code, message),), fix, error_class=error_class)


def _least_demand(rejected: Iterable[JudgedBuild], code: str) -> str:
    """Return the reason of the build that the oldest driver would do for, among those of one reason."""
    reasons = {
        judged.build.toolkit or (): judged.reason.message
        for judged in rejected
        if judged.reason and judged.code == code
    }
    # The oldest toolkit does with the oldest driver.
    return reasons[min(reasons)]


def _conflict(
    unserved: NoCandidate,
    limits: list[Limit],
    request: Request,
    attempt: Attempt,
) -> tuple[list[Limit], NoCandidate]:
    """Return a smallest part of the request that cannot be served, without whatever the failure does not need.

    Args:
        unserved: What the whole request came to.
        limits: All that can stand in its way.
        request: The request.
        attempt: What another request would come to.
    """
    needed = limits
    # torch last: what goes with a torch that cannot be had is no reason of its own.
    for limit in sorted(limits, key=lambda limit: limit.is_of_torch):
        without = [other for other in needed if other != limit]
        dropped = [other for other in limits if other not in without]
        outcome = attempt(without_limits(request, dropped))
        if isinstance(outcome, NoCandidate):
            needed = without
            unserved = outcome
    return needed, unserved


def _disagreement(
    culprits: list[Limit],
    nearest: JudgedBuild | None,
    context: PlanContext,
) -> Reason:
    """Return what cannot be had together, or what cannot be had at all.

    Args:
        culprits: A smallest part of the request that cannot be served.
        nearest: The build that came closest to it.
        context: What that part came to.
    """
    code = "no-build"
    cause = ""
    side = None
    if nearest:
        code = nearest.code
        side = _other_side(nearest.build, code, context)
        if code not in {"other-torch", "other-backend", "other-cuda"}:
            cause = nearest.named_reason
    if len(culprits) == 1 and side is None:
        if cause:
            message = f"no build of torch fits {culprits[0].words}{culprits[0].place}; {cause}"
        else:
            message = _unknown(culprits[0], context)
        return Reason(code, message)
    *first, last = [culprit.words for culprit in culprits]
    # One alone disagrees with the machine, or with what its sources have.
    if not first:
        first = [last]
        last = str(side)
    cause = cause or "no build serves them"
    return Reason(code, f"{', '.join(first)} and {last} are incompatible: {cause}")


def _other_side(
    build: Build,
    code: str,
    context: PlanContext,
) -> str | None:
    """Return the fact of the machine or its sources that a request disagrees with; None if it is the builds themselves.

    Args:
        build: The build that came closest.
        code: The code of the reason against it.
        context: What is requested, and of which machine.
    """
    if code in context.rules.driver_reasons:
        return context.rules.driver
    if code in context.rules.code_reasons:
        return context.gpu_names.replace(" and ", " with ")
    if code == "no-companion" and build.listed_at:
        return "the versions in the sources"
    if code == "glibc-too-old":
        return f"glibc {context.machine.glibc}"
    return None


def _unknown(culprit: Limit, context: PlanContext) -> str:
    """Return that something requested is not there, at all or for this platform."""
    platform = f"{context.machine.os} {context.machine.arch}"
    message = f"no build of torch for {platform} fits {culprit.words}{culprit.place}"
    if culprit.is_of_torch:
        torches = {build.torch for build in context.catalog.builds}
        requirement = culprit.requirement
        if requirement and not any(map(requirement.allows, torches)):
            known = f"{min(torches)} to {max(torches)}" if torches else "none"
            message += f"; the catalog of {context.catalog.date} has {known}"
    return message


def _change(
    limit: Limit,
    build: Build,
    context: PlanContext,
) -> str:
    """Return how to request ``build`` by taking back what stands in its way.

    Args:
        limit: What is to be taken back.
        build: The build that would then be chosen.
        context: What is requested, and of which machine.
    """
    value = limit.value
    match limit.field:
        case "backend" if not context.gpus:
            return f"Run it again with --backend {build.backend}"
        case "python" | "backend" | "allowed_backends":
            place = str(context.demand.request.places.get(value, ""))
            if place.startswith("--"):
                return f"Run it again without {place}"
            return (
                f"Without {limit.words} ({place})"
                if place
                else f"Without {limit.words}"
            )
        case "requirements":
            other = "torch" if limit.is_of_torch else None
            text = limit.requirement.text if limit.requirement else ""
            cuda_name = context.cuda_names.get(text)
            if cuda_name and build.toolkit:
                other = cuda_name.names.get(build.toolkit[0])
            if other:
                return f"Write {other} instead of {value}"
    return f"Run it again without {value}"


def _fix(nearest: JudgedBuild, context: PlanContext) -> str | None:
    """Return what would give the build that came closest."""
    build = nearest.build
    code = nearest.code
    if build.backend == CPU and code in NOT_THERE:
        return _CPU_BUILD
    match code:
        case "unreachable":
            return _MIRROR
        case "glibc-too-old":
            return (
                f"Use a distribution or a container with glibc {build.glibc} or newer"
            )
        case "no-python":
            return f"Install Python {span(build.pythons)}"
        case _:
            return context.rules.driver_fix(build, code, context.gpus)
