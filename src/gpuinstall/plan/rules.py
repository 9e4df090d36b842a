"""Define selection rules for torch builds that do not depend on GPUs."""

from __future__ import annotations

from collections.abc import Callable

from gpuinstall.base.finding import Reason
from gpuinstall.base.versions import version_key
from gpuinstall.catalog.catalog import PAIRED, Build
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.python import format_python_range, list_installed_pythons

# Rejection messages by the value of ``Build.absent``.
_ABSENT = {
    "withdrawn": "its index no longer lists it",
    "too-new": "its index lists no file of it before exclude-newer",
    "unreachable": "its index is unreachable, and no other source has it",
    "split": "its libraries are separate packages, one of which is built on this machine",
    "without-extension": "a requested extension has no prebuilt file for it",
    "unverified": "it may not have been published",
    "failed": "a kernel failed on this machine with the same GPU code or CUDA",
}

REQUEST_REASONS = ("other-torch", "other-backend", "other-cuda", "not-allowed")
"""Reason codes for builds that the request excludes."""

UNAVAILABLE = (*_ABSENT, "not-in-catalogue", "architectures-unknown")
"""Reason codes for builds that are unavailable or not inspected."""


def require_torch(build: Build, context: PlanContext) -> Reason | None:
    """Reject a build if its torch version does not satisfy the request."""
    specifier = context.demand.torch_requirement.specifier
    excluded = [one.version.lower() for one in specifier or () if one.operator == "!="]
    if build.torch in context.requested_torches and build.name not in excluded:
        return None
    return Reason("other-torch", f"torch{specifier} is requested")


def require_backend(build: Build, context: PlanContext) -> Reason | None:
    """Reject a build if the user requests another backend."""
    backends = context.demand.backends
    if not backends or backends == {build.backend}:
        return None
    tags = sorted(backend.tag for backend in backends)
    return Reason("other-backend", f"backend {' and '.join(tags)} is requested")


def require_cuda_version(build: Build, context: PlanContext) -> Reason | None:
    """Reject a build if a package name contains another CUDA version."""
    if build.backend.kind != "cuda" or build.toolkit is None:
        return None
    for text, name in context.cuda_names.items():
        if build.toolkit[0] != name.major:
            message = f"{text} is for CUDA {name.major}, and a process can load only one CUDA major version"
            return Reason("other-cuda", message)
    return None


def require_allowed_backend(build: Build, context: PlanContext) -> Reason | None:
    """Reject a build unless the project allows its backend."""
    allowed = context.demand.request.allowed_backends
    if allowed is None or build.backend.tag in allowed:
        return None
    limits = context.demand.limits
    [limit] = [one for one in limits if one.field == "allowed_backends"]
    return Reason("not-allowed", f"{limit} exclude it")


def require_source(build: Build, _context: PlanContext) -> Reason | None:
    """Reject a build that is unavailable."""
    if build.absent is None:
        return None
    return Reason(build.absent, _ABSENT[build.absent])


def require_companions(build: Build, context: PlanContext) -> Reason | None:
    """Reject a build if a requested companion has no compatible version."""
    return context.companions.find_rejection(build)


def require_glibc(build: Build, context: PlanContext) -> Reason | None:
    """Reject a build if its platform tag requires a newer glibc."""
    glibc = context.machine.glibc
    if (
        build.glibc is None
        or glibc is None
        or version_key(glibc) >= version_key(build.glibc)
    ):
        return None
    message = f"its wheels require glibc {build.glibc}; this machine has {glibc}"
    return Reason("glibc-too-old", message)


def require_python(build: Build, context: PlanContext) -> Reason | None:
    """Reject a build without wheels for a requested Python version."""
    if context.compatible_pythons(build):
        return None
    companions = " and ".join(filter(PAIRED.__contains__, context.demand.family))
    subject = f"it and {companions} have" if companions else "it has"
    pythons = format_python_range(context.companions.find_pythons(build))
    message = (
        f"{subject} wheels for Python {pythons}, not {context.demand.request.python}"
    )
    return Reason("python-unsupported", message)


def require_available_python(build: Build, context: PlanContext) -> Reason | None:
    """Reject a build if no supported Python version is available."""
    compatible = context.compatible_pythons(build)
    if not compatible or context.select_python(build):
        return None
    required = format_python_range(compatible)
    names = ", ".join(dict.fromkeys(list_installed_pythons(context.machine))) or "none"
    message = (
        f"it requires Python {required}; installed: {names}, and no other is available"
    )
    return Reason("no-python", message)


def require_code_list(build: Build, context: PlanContext) -> Reason | None:
    """Reject a build with unknown GPU code unless its backend is requested."""
    is_forced = build.backend in context.demand.backends
    if build.unread or not build.lists_no_code or is_forced:
        return None
    message = f"its wheel does not list its GPU code; --backend {build.backend} selects it anyway"
    return Reason("architectures-unknown", message)


def require_inspection(build: Build, context: PlanContext) -> Reason | None:
    """Reject a build if its wheel was not inspected."""
    if not build.unread:
        return None
    obstacle = context.rules.find_driver_rejection(build) if context.gpus else None
    if obstacle:
        return obstacle
    message = f"an index lists it, but the catalog of {context.catalog.date} does not"
    if build.obstacle:
        message += f": {build.obstacle}"
    return Reason("not-in-catalogue", message)


RULES: dict[Callable[[Build, PlanContext], Reason | None], tuple[str, ...]] = {
    require_torch: ("other-torch",),
    require_backend: ("other-backend",),
    require_cuda_version: ("other-cuda",),
    require_allowed_backend: ("not-allowed",),
    require_source: tuple(_ABSENT),
    require_companions: ("no-companion",),
    require_glibc: ("glibc-too-old",),
    require_python: ("python-unsupported",),
    require_available_python: ("no-python",),
    require_code_list: ("architectures-unknown",),
    require_inspection: ("not-in-catalogue",),
}
"""The selection rules in order of application, each with its reason codes.

A build that passes more rules is closer to the request.
"""
