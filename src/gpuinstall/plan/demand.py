"""Parse the requested torch, companions, backend, and Python version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.base.advice import Hint, make_change, make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import ANY_TORCH, Request
from gpuinstall.base.requirement import (
    INSTALLED,
    NO_ORIGIN,
    Requirement,
    TextOrigin,
    marker_environment,
    parse_specifier,
    requirement_names,
)
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import Backend, known_backend, looks_like_tag, version_key
from gpuinstall.plan.python import (
    find_release,
    get_minor_version,
    list_installed_pythons,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from packaging.specifiers import SpecifierSet

    from gpuinstall.base.machine import Machine
    from gpuinstall.catalog.catalog import Catalog

KNOWN_PYTHONS = tuple(f"3.{minor}" for minor in range(29, 6, -1))
"""The Python versions that a request can include, newest first."""


class Limit(Value):
    """A requirement, constraint, or option that can exclude torch builds."""

    text: str
    """The requirement as written, or a description such as ``Python 3.12``."""

    requirement: Requirement = ANY_TORCH
    """The requirement without local versions (see ``backends``)."""

    field: str = ""
    """The name of the request field. Empty: a requirement or constraint."""

    backends: frozenset[Backend] = frozenset()
    origin: TextOrigin = NO_ORIGIN

    def __str__(self) -> str:
        place = "" if self.is_typed else str(self.origin)
        return f"{self.text} ({place})" if place else self.text

    @property
    def is_typed(self) -> bool:
        """Whether the limit is an argument of the command."""
        if self.field:
            return self.origin.file.startswith("--")
        return not (self.origin.is_in_file or self.origin == INSTALLED)

    @property
    def package(self) -> str:
        """The name of the required package. Empty: an option."""
        return "" if self.field else self.requirement.name

    def suggest_removal(self, note: str, *others: str) -> Hint:
        """Return a hint to remove the limit, or to replace it.

        Args:
            note: The effect.
            others: The words of the command that replace it.
        """
        if self.is_typed:
            removed = self.origin.file.split() if self.field else [self.text]
            return make_change(*others, note=note, without=removed)
        if others:
            return f"Write {others[0]} instead of {self}: {note}"
        return f"Omit {self}: {note}"


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

    limits: tuple[Limit, ...]
    """The requirements and options that can exclude torch builds."""

    backends: frozenset[Backend]
    is_labeled: bool
    """Whether a requirement contains a backend, as in ``==2.9.1+cpu``."""

    pythons: frozenset[str]
    """The requested Python versions, as ``X.Y``."""

    pythons_to_try: tuple[str, ...]
    """The preferred Python versions, then installed versions, newest first."""

    markers: Mapping[str, str]
    """The marker values before a build is selected."""

    preferred_backend: Backend | None = None


def allows_python(requested: SpecifierSet, python: str) -> bool:
    """Return whether a specifier allows any release of Python ``X.Y``."""
    # Try the first patch release, a high patch number, and each patch release in the specifier.
    patches = [f"{python}.0", f"{python}.99"]
    for specifier in requested:
        minor, _, patch = specifier.version.rpartition(".")
        if minor == python and patch.isdigit():
            patches.append(specifier.version)
    return any(map(requested.contains, patches))


def prefer_python(pythons: Sequence[str], to_try: Iterable[str], settled: str) -> str:
    """Return the preferred Python version among possible ones.

    Args:
        pythons: The possible versions.
        to_try: The versions to prefer, best first.
        settled: The version to download, or the nearest one.
    """
    for python in to_try:
        if python in pythons:
            return python
    older = [one for one in pythons if version_key(one) <= version_key(settled)]
    return max(older or pythons[-1:], key=version_key)


def create_marker_values(
    request: Request, machine: Machine, catalog: Catalog
) -> dict[str, str]:
    """Return the marker values for a machine and its preferred Python.

    The selected build may require another Python, but the selection itself depends on
    markers.
    """
    pythons = _list_requested_pythons(request)
    to_try = _list_pythons_to_try(request, machine)
    python = prefer_python(pythons or KNOWN_PYTHONS, to_try, catalog.settled_python)
    release = find_release(python, request, machine)
    return marker_environment(machine.os, machine.arch, release)


def _list_requested_pythons(request: Request) -> list[str]:
    """Return the Python versions that a request allows, newest first."""
    if not request.python:
        return [*KNOWN_PYTHONS]
    requested = parse_requested_python(request.python)
    return [python for python in KNOWN_PYTHONS if allows_python(requested, python)]


def _list_pythons_to_try(request: Request, machine: Machine) -> tuple[str, ...]:
    """Return the preferred Python versions, then the installed ones."""
    own = sorted(list_installed_pythons(machine), key=version_key, reverse=True)
    return (*map(get_minor_version, request.preferred_pythons), *own)


def parse_request(request: Request, catalog: Catalog, machine: Machine) -> Demand:
    """Parse a request, and evaluate its markers for a machine.

    Args:
        request: The request to parse.
        catalog: The catalog with the family of torch and the default Python.
        machine: The machine that determines the marker values.

    Raises:
        UsageError: The request is malformed.
    """
    family = catalog.family
    requirements = list(request.requirements)
    names = {"torch", *requirement_names(requirements)}
    # A constraint does not request a package. Keep a constraint with a URL, so that it is rejected below.
    requirements += [
        constraint
        for constraint in request.constraints
        if constraint.name in family and (constraint.name in names or constraint.url)
    ]
    markers = create_marker_values(request, machine, catalog)
    companions: dict[str, Requirement] = {}
    limits = []
    others = []
    for requirement in requirements:
        text = requirement.written or requirement.text
        if requirement.name not in family:
            others.append(requirement)
            limits.append(Limit(text, requirement, origin=requirement.origin))
        elif requirement.applies_in(markers):
            public, labels = _split_labels(requirement)
            backends = _parse_backends(*labels)
            limits.append(
                Limit(text, public, backends=backends, origin=requirement.origin)
            )
            earlier = companions.get(public.name)
            companions[public.name] = (
                earlier.combine_with(public) if earlier else public
            )
    is_labeled = any(limit.backends for limit in limits)
    limits += _list_options(request)
    return Demand(
        request,
        torch_requirement=replace(companions.pop("torch", ANY_TORCH), marker=None),
        family=companions,
        others=tuple(others),
        limits=tuple(limits),
        backends=frozenset().union(*(limit.backends for limit in limits)),
        is_labeled=is_labeled,
        pythons=frozenset(_list_requested_pythons(request)),
        pythons_to_try=_list_pythons_to_try(request, machine),
        markers=markers,
        preferred_backend=known_backend(request.preferred_backend),
    )


def _list_options(request: Request) -> Iterator[Limit]:
    """Yield the options of a request that can exclude torch builds."""
    python, backend = request.python, request.backend
    if python:
        origin = request.places.get(python, NO_ORIGIN)
        yield Limit(f"Python {python}", field="python", origin=origin)
    if backend:
        yield Limit(
            f"backend {backend}",
            field="backend",
            backends=_parse_backends(backend),
            origin=request.places.get(backend, NO_ORIGIN),
        )
    allowed = request.allowed_backends
    if allowed is not None:
        yield Limit(
            f"the allowed backends {', '.join(allowed) or '(none)'}",
            field="allowed_backends",
            origin=request.places.get(str(allowed), NO_ORIGIN),
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


def _parse_backends(*tags: str) -> frozenset[Backend]:
    backends = []
    for tag in tags:
        backend = known_backend(tag)
        if backend is None:
            raise UsageError(
                "backend-malformed",
                f"{tag!r} is not a backend such as cu126 or cpu",
                hint=make_command(
                    "plan", "--all", note="lists the builds and their backends"
                ),
            )
        backends.append(backend)
    return frozenset(backends)


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
