"""Parse the requested torch, companions, backend, and Python version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import ANY_TORCH, Request
from gpuinstall.base.requirement import Requirement, parse_specifier, requirement_names
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import Backend, known_backend, looks_like_tag, version_key
from gpuinstall.machine.vendors import find_supported_backend
from gpuinstall.plan.python import list_installed_pythons

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from gpuinstall.base.machine import Machine

_PYTHONS = tuple(f"3.{minor}" for minor in range(29, 6, -1))
"""The Python versions that a request can include, newest first."""


class Demand(Value, eq=False):
    """A request that is parsed for one machine."""

    request: Request
    """The request before parsing."""

    torch_requirement: Requirement
    """The requirement for torch, without local versions (see ``backends``)."""

    family: dict[str, Requirement]
    """The requirements for companions of torch, by package name."""

    others: tuple[Requirement, ...]
    """The requirements outside the torch family."""

    backends: frozenset[Backend]
    is_labeled: bool
    """Whether a requirement contains a backend, as in ``==2.9.1+cpu``."""

    pythons: frozenset[str]
    """The requested Python versions, as ``X.Y``."""

    pythons_to_try: tuple[str, ...]
    """The preferred Python versions, then installed versions, newest first."""

    preferred_backend: Backend | None = None

    def allows(self, torch: Version) -> bool:
        """Return whether a torch version satisfies the request."""
        return self.torch_requirement.allows(torch)


def allows_python(requested: SpecifierSet, python: str) -> bool:
    """Return whether a specifier allows any release of Python ``X.Y``."""
    # Try the first patch release, a high patch number, and each patch release in the specifier.
    patch = re.compile(rf"{re.escape(python)}\.[0-9]+")
    versions = [specifier.version for specifier in requested]
    patches = [f"{python}.0", f"{python}.99", *filter(patch.fullmatch, versions)]
    return any(map(requested.contains, patches))


def parse_request(
    request: Request,
    family: frozenset[str],
    machine: Machine,
) -> Demand:
    """Parse a request, and evaluate its markers for a machine.

    Args:
        request: The request to parse.
        family: The package names of torch and its companions.
        machine: The machine that determines the marker values.

    Raises:
        UsageError: The request is malformed.
    """
    requirements = list(request.requirements)
    names = {"torch", *requirement_names(requirements)}
    # A constraint does not request a package. Keep a constraint with a URL, so that it is rejected below.
    requirements += [
        constraint
        for constraint in request.constraints
        if constraint.name in family and (constraint.name in names or constraint.url)
    ]
    pythons = list(_PYTHONS)
    if request.python:
        python = parse_requested_python(request.python)
        pythons = [one for one in _PYTHONS if allows_python(python, one)]
    own = sorted(list_installed_pythons(machine), key=version_key, reverse=True)
    to_try = (*request.preferred_pythons, *own)
    # The Python version depends on the build, which depends on requirements with Python markers. Assume a version first.
    available = [one for one in to_try if one in pythons]
    first_python = (*available, *pythons, *_PYTHONS)[0]
    labels = []
    companions: dict[str, Requirement] = {}
    others = []
    for requirement in requirements:
        if requirement.name not in family:
            others.append(requirement)
        elif requirement.applies_on(machine, first_python):
            public, own_labels = _split_labels(requirement)
            labels += own_labels
            earlier = companions.get(public.name)
            companions[public.name] = (
                earlier.combine_with(public) if earlier else public
            )
    return Demand(
        request,
        torch_requirement=replace(companions.pop("torch", ANY_TORCH), marker=None),
        family=companions,
        others=tuple(others),
        backends=frozenset(
            map(_parse_backend, filter(None, (request.backend, *labels)))
        ),
        is_labeled=bool(labels),
        pythons=frozenset(pythons),
        pythons_to_try=to_try,
        preferred_backend=known_backend(request.preferred_backend),
    )


def _split_labels(requirement: Requirement) -> tuple[Requirement, list[str]]:
    """Split backend tags such as ``cu132`` from a requirement's versions."""
    if requirement.url:
        raise UsageError(
            "requirement-by-address",
            f"{requirement.name} is requested by URL, but gpuinstall selects the file itself",
            hint=f"Request {requirement.name}, or a version of it",
        )
    clauses = []
    tags = []
    for clause in requirement.specifier or ():
        text = str(clause)
        public, _, tag = clause.version.lower().partition("+")
        if text.startswith("==") and looks_like_tag(tag):
            tags.append(tag)
            text = f"=={public}"
        clauses.append(text)
    if not tags:
        return requirement, tags
    specifier = parse_specifier(",".join(clauses))
    return replace(requirement, clauses=str(specifier)), tags


def _parse_backend(tag: str) -> Backend:
    backend = find_supported_backend(tag)
    if backend is None:
        raise UsageError(
            "backend-malformed",
            f"{tag!r} is not a backend such as cu126 or cpu",
            hint="Use a backend such as cu126, rocm7.2, xpu, or cpu",
        )
    return backend


def parse_requested_python(text: str) -> SpecifierSet:
    """Parse a requested Python version, which can be ``X.Y`` or a specifier.

    Raises:
        UsageError: The version is malformed or free-threaded.
    """
    exact = re.fullmatch(r"(3\.[0-9]+)(?:\.[0-9]+)?(t?)", text)
    if exact and exact[2]:
        raise UsageError(
            "python-free-threaded",
            f"Python {text} is free-threaded, which gpuinstall does not support yet",
            hint=f"Request Python {exact[1]}",
        )
    try:
        return parse_specifier(f"=={exact[1]}.*" if exact else text)
    except ValueError:
        message = f"{text!r} is not a valid Python version, such as 3.12"
        hint = re.sub("^3([0-9]*)$", r"Request Python 3.\1", text)
        if text == "3":
            hint = "Request Python >=3"
        raise UsageError(
            "python-malformed", message, hint=None if hint == text else hint
        ) from None
