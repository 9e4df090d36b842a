"""A Request, parsed: what it says of torch, of torch's companions, of the backend, of Python, of the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import ANY_TORCH, Request
from gpuinstall.base.requirement import (
    Requirement,
    parse_specifier,
)
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import Backend, is_like_a_tag, known_backend
from gpuinstall.machine.vendors import served_backend
from gpuinstall.plan.python import installed, number

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from gpuinstall.base.machine import Machine

_PYTHONS = tuple(f"3.{minor}" for minor in range(29, 6, -1))
"""The Pythons that a marker may tell apart, the newest first."""


class Demand(Value, eq=False):
    """What must hold of a plan."""

    request: Request
    """What it was read from, which has the rest: the GPUs, the allowed backends, the Pythons to try first."""

    torch: SpecifierSet | None
    """The specifiers of all its requirements together, without local versions, which go into ``backends``."""

    torch_requirement: Requirement
    """Of torch, with its extras."""

    family: dict[str, Requirement]
    """The companions that are requested, by name."""

    others: tuple[Requirement, ...]
    """The requirements that have nothing to do with the choice."""

    backends: frozenset[Backend]
    python: SpecifierSet | str | None
    """A specifier, or an exact ``X.Y``."""

    pythons: frozenset[str]
    """Each ``X.Y`` that is requested."""

    pythons_at_hand: tuple[str, ...]
    """The Pythons preferred, then the machine's own, the newest first."""

    preferred_backend: Backend | None = None

    def wants(self, torch: Version) -> bool:
        """Whether a torch version satisfies the requirements."""
        return self.torch is None or self.torch.contains(torch)


def suits_python(requested: SpecifierSet | str | None, python: str) -> bool:
    """Whether the Python ``X.Y`` is one that is requested."""
    if requested is None:
        return True
    if isinstance(requested, str):
        return requested == python
    # One of its patch releases has to be allowed: the first, a late one, or one that the specifier mentions.
    patch = re.compile(rf"{re.escape(python)}\.[0-9]+")
    versions = [specifier.version for specifier in requested]
    patches = [f"{python}.0", f"{python}.99", *filter(patch.fullmatch, versions)]
    return any(map(requested.contains, patches))


def parse_request(
    request: Request,
    family: frozenset[str],
    machine: Machine,
) -> Demand:
    """Return what a request demands on a machine: of the family, what holds for the Python that is tried first.

    Args:
        request: The request.
        family: The names of the packages that are chosen together with torch.
        machine: Where markers are evaluated.

    Raises:
        UsageError: The request is malformed.
    """
    requirements = list(request.requirements)
    names = {"torch", *(requirement.name for requirement in requirements)}
    # A constraint requests no package.
    for constraint in request.constraints:
        # One with an address counts all the same: it would say where a file of the family comes from, and is refused.
        is_demand = constraint.name in names or constraint.url
        if is_demand and constraint.name in family:
            requirements.append(constraint)
    python = requested_python(request.python)
    # Once: a plan asks for each build, and a specifier is slow to ask.
    pythons = [one for one in _PYTHONS if suits_python(python, one)]
    own_pythons = sorted(installed(machine), key=number, reverse=True)
    pythons_at_hand = (*request.preferred_pythons, *own_pythons)
    # The build decides the Python, and a marker what has to go with the build: one of the two has to be assumed first.
    first_at_hand = [one for one in pythons_at_hand if one in pythons]
    first_python = (*first_at_hand, *pythons, *_PYTHONS)[0]
    tags = [request.backend] if request.backend else []
    companions: dict[str, Requirement] = {}
    others = []
    for requirement in requirements:
        if requirement.name not in family:
            others.append(requirement)
        elif requirement.counts_on(machine, first_python):
            own = _of_family(requirement, tags)
            earlier = companions.get(own.name)
            companions[own.name] = earlier.narrowed(own) if earlier else own
    torch = companions.pop("torch", ANY_TORCH)
    return Demand(
        request,
        torch=torch.specifier,
        torch_requirement=replace(torch, marker=None),
        family=companions,
        others=tuple(others),
        backends=frozenset(map(_backend, tags)),
        python=python,
        pythons=frozenset(pythons),
        pythons_at_hand=pythons_at_hand,
        preferred_backend=known_backend(request.preferred_backend),
    )


def _of_family(requirement: Requirement, tags: list[str]) -> Requirement:
    """Return a requirement whose versions carry no backend, as ``==2.15.0+cu132`` does; its tag goes to ``tags``."""
    if requirement.url:
        raise UsageError(
            "requirement-by-address",
            f"{requirement.name} is requested by URL, but gpuinstall chooses the file itself",
            hint=f"ask for {requirement.name}, or for a version of it",
        )
    specifiers = []
    has_label = False
    for specifier in requirement.specifier or ():
        text = str(specifier)
        public, _, tag = specifier.version.lower().partition("+")
        if text.startswith("==") and is_like_a_tag(tag):
            has_label = True
            tags.append(tag)
            text = f"=={public}"
        specifiers.append(text)
    if not has_label:
        return requirement
    joined = ",".join(specifiers)
    return replace(requirement, clauses=str(parse_specifier(joined)))


def _backend(tag: str) -> Backend:
    backend = served_backend(tag)
    if backend is None:
        raise UsageError(
            "backend-malformed",
            f"{tag!r} is not a backend such as cu126 or cpu",
            hint="Backends are cu126, rocm7.2, xpu, cpu and others",
        )
    return backend


def requested_python(text: str | None) -> SpecifierSet | str | None:
    """Return a request for a Python, an ``X.Y`` or a specifier.

    Raises:
        UsageError: It is neither, or of a free-threaded Python.
    """
    if text is None:
        return None
    exact = re.fullmatch(r"(3\.[0-9]+)(?:\.[0-9]+)?(t?)", text)
    if exact and exact[2]:
        raise UsageError(
            "python-free-threaded",
            f"Python {text} is free-threaded, and nothing is chosen for such a Python yet",
            hint=f"Request Python {exact[1]}",
        )
    if exact:
        return exact[1]
    try:
        return parse_specifier(text)
    except ValueError:
        message = f"{text!r} is not a Python version such as 3.12"
        hint = re.sub("^3([0-9]*)$", r"Request Python 3.\1", text)
        if text == "3":
            hint = "Request Python >=3"
        raise UsageError(
            "python-malformed", message, hint=None if hint == text else hint
        ) from None
