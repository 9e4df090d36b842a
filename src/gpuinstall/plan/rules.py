"""The rules that do not depend on a GPU: each returns None (the build fits) or the reason why it does not."""

from __future__ import annotations

from collections.abc import Callable

from gpuinstall.base.finding import Reason
from gpuinstall.base.versions import numbers
from gpuinstall.catalog.catalog import PAIRED, Build
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.python import installed, span

# Why a build cannot be had today, by its ``absent``.
_ABSENT = {
    "withdrawn": "its index no longer lists it",
    "unreachable": "its index is unreachable, and no other source has it",
    "split": "its libraries are separate packages, one of which is built on this machine",
    "without-extension": "a requested extension has no prebuilt file for it",
    "unverified": "it may not have been published",
    "failed": "a kernel failed on this machine with the same GPU code or CUDA",
}

NOT_THERE = (*_ABSENT, "not-in-catalogue", "architectures-unknown")
"""The codes of builds that nobody can have, or nobody knows."""


def is_the_torch(build: Build, context: PlanContext) -> Reason | None:
    """Keep what the requirements say of torch, also by the name of a build, ``torch!=2.15.0+cu132``."""
    torch = context.demand.torch
    excluded = [part.version.lower() for part in torch or () if part.operator == "!="]
    if build.torch in context.requested_torches and build.name not in excluded:
        return None
    return Reason("other-torch", f"torch{torch} is asked for")


def is_the_backend(build: Build, context: PlanContext) -> Reason | None:
    """Keep the backend that is forced, by an option or by a local version."""
    backends = context.demand.backends
    if not backends or backends == {build.backend}:
        return None
    tags = sorted(backend.tag for backend in backends)
    return Reason("other-backend", f"backend {' and '.join(tags)} is asked for")


def is_of_requested_cuda(build: Build, context: PlanContext) -> Reason | None:
    """Keep the CUDA that the name of a program carries."""
    if build.backend.kind != "cuda" or build.toolkit is None:
        return None
    for text, name in context.cuda_names.items():
        if build.toolkit[0] != name.major:
            message = f"{text} is for CUDA {name.major}, and one process has one CUDA"
            return Reason("other-cuda", message)
    return None


def is_allowed(build: Build, context: PlanContext) -> Reason | None:
    """Keep a team's list of backends."""
    allowed = context.demand.request.allowed_backends
    if allowed is None or build.backend.tag in allowed:
        return None
    tags = ", ".join(allowed) or "none"
    return Reason("not-allowed", f"the allowed backends are {tags}")


def exists(build: Build, _context: PlanContext) -> Reason | None:
    """Take no build whose existence is a guess, nor one that no source has today."""
    if build.absent is None:
        return None
    return Reason(build.absent, _ABSENT[build.absent])


def has_companions(build: Build, context: PlanContext) -> Reason | None:
    """Take no build that a requested companion does not load beside."""
    return context.companions.missing(build)


def fits_glibc(build: Build, context: PlanContext) -> Reason | None:
    """Keep the floor of the wheel's platform tag."""
    glibc = context.machine.glibc
    if build.glibc is None or glibc is None or numbers(glibc) >= numbers(build.glibc):
        return None
    message = f"its wheels require glibc {build.glibc}; this machine has {glibc}"
    return Reason("glibc-too-old", message)


def fits_python(build: Build, context: PlanContext) -> Reason | None:
    """Take no build without wheels, its own and its companions', for a Python of the request."""
    if context.fitting_pythons(build):
        return None
    companions = " and ".join(filter(PAIRED.__contains__, context.demand.family))
    subject = f"it and {companions} have" if companions else "it has"
    pythons = span(context.companions.pythons(build))
    message = f"{subject} wheels for Python {pythons}, not {context.demand.python}"
    return Reason("python-unsupported", message)


def finds_python(build: Build, context: PlanContext) -> Reason | None:
    """Take no build whose Pythons can neither be found nor fetched."""
    if context.python(build):
        return None
    required = span(context.fitting_pythons(build))
    names = ", ".join(dict.fromkeys(installed(context.machine))) or "none"
    message = (
        f"it requires Python {required}; installed: {names}, and no other is available"
    )
    return Reason("no-python", message)


def lists_code(build: Build, context: PlanContext) -> Reason | None:
    """Reject a build whose wheel was read and lists no GPU code, unless its backend is forced."""
    if (
        build.unread
        or not build.lists_no_code
        or build.backend in context.demand.backends
    ):
        return None
    message = f"its wheel does not list its GPU code: --backend {build.backend} takes it anyway"
    return Reason("architectures-unknown", message)


def is_read(build: Build, context: PlanContext) -> Reason | None:
    """Take no build that was never read; its driver is named first if that is too old for it anyway."""
    if not build.unread:
        return None
    obstacle = context.rules.against_driver(build) if context.gpus else None
    if obstacle:
        return obstacle
    message = (
        f"the index has it, the catalog of {context.catalog.date} does not know it"
    )
    if build.obstacle:
        message += f": {build.obstacle}"
    return Reason("not-in-catalogue", message)


RULES: dict[Callable[[Build, PlanContext], Reason | None], tuple[str, ...]] = {
    is_the_torch: ("other-torch",),
    is_the_backend: ("other-backend",),
    is_of_requested_cuda: ("other-cuda",),
    is_allowed: ("not-allowed",),
    exists: tuple(_ABSENT),
    has_companions: ("no-companion",),
    fits_glibc: ("glibc-too-old",),
    fits_python: ("python-unsupported",),
    finds_python: ("no-python",),
    lists_code: ("architectures-unknown",),
    is_read: ("not-in-catalogue",),
}
"""In the order in which they are asked, each with the codes of its reasons.

The further down a rule, the closer the builds came that it rejects.
"""
