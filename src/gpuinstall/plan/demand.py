"""A Request, parsed: what it says of torch, of torch's companions, of the backend, of Python, of the rest."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import (
    ParsedRequirement,
    marker_holds,
    parse_requirement,
    parse_specifier,
)
from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import CPU, Backend, is_like_a_tag, known_backend
from gpuinstall.machine.vendors import VENDORS
from gpuinstall.plan.python import at_hand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.request import Request

_PYTHONS = tuple(f"3.{minor}" for minor in range(29, 6, -1))
"""The Pythons that a marker may tell apart, the newest first."""


@dataclass(frozen=True, eq=False)
class Demand:
    """What must hold of a plan."""

    torch: SpecifierSet | None
    """The specifiers of all its requirements together, without local versions, which go into ``backends``."""

    extras: str
    """Those of torch, as in ``[opt-einsum]``."""

    family: dict[str, ParsedRequirement]
    """The companions that are requested, by name."""

    others: tuple[str, ...]
    """The requirements that have nothing to do with the choice."""

    backends: frozenset[Backend]
    allowed: tuple[str, ...] | None
    """The backends of a team's list; None: all of them."""

    python: SpecifierSet | str | None
    """A specifier, or an exact ``X.Y``."""

    preferred: tuple[str, ...]
    """The Pythons to try first, in this order."""

    managed: bool
    """Whether other Pythons than the machine's can be fetched."""

    gpus: tuple[str | int, ...] | None = None
    """Indices or UUIDs; None: all GPUs."""

    pythons: frozenset[str] | None = None
    """The ``X.Y`` for which the request says this; None: all of them."""

    preferred_backend: Backend | None = None

    def wants(self, torch: Version) -> bool:
        """Whether a torch version satisfies the requirements."""
        return self.torch is None or self.torch.contains(torch)

    def suits(self, python: str) -> bool:
        """Whether the Python ``X.Y`` is one that is requested."""
        minor = python.removesuffix("t")
        if self.pythons is not None and minor not in self.pythons:
            return False
        if self.python is None:
            return True
        if isinstance(self.python, str):
            return self.python == python
        # One of its patch releases has to be allowed: the first, a late one, or one that the specifier mentions.
        patch = re.compile(rf"{re.escape(minor)}\.[0-9]+")
        versions = [specifier.version for specifier in self.python]
        patches = [f"{minor}.0", f"{minor}.99", *filter(patch.fullmatch, versions)]
        return any(map(self.python.contains, patches))


def parse_request(request: Request, family: frozenset[str], machine: Machine) -> Demand:
    """Return what a request demands on a machine.

    If markers make it another request for another Python, it is that of the Python which is tried first, and of the others
    for which the same requirements hold.

    Raises:
        UsageError: The request is malformed.
    """
    requirements = [parse_requirement(text) for text in request.requirements]
    names = {"torch", *(requirement.name for requirement in requirements)}
    # A constraint requests no package.
    for text in request.constraints:
        constraint = parse_requirement(text)
        if constraint.name in names and constraint.name in family:
            requirements.append(constraint)
    ours = [requirement for requirement in requirements if requirement.name in family]
    demand = Demand(
        torch=None,
        extras="",
        family={},
        others=tuple(each.text for each in requirements if each.name not in family),
        backends=frozenset(),
        allowed=request.allowed_backends,
        python=_python(request.python),
        preferred=request.preferred_pythons,
        managed=request.managed_pythons,
        gpus=request.gpus,
        preferred_backend=known_backend(request.preferred_backend),
    )
    if any(requirement.marker for requirement in ours):
        ours, demand = _for_one_python(ours, demand, machine)
    return _of_family(demand, ours, request.backend)


def _for_one_python(
    requirements: list[ParsedRequirement],
    demand: Demand,
    machine: Machine,
) -> tuple[list[ParsedRequirement], Demand]:
    """Return the requirements whose markers hold for the Python to try first; and the demand, for the Pythons like it."""

    def holding(python: str) -> list[ParsedRequirement]:
        return [
            requirement
            for requirement in requirements
            if requirement.marker is None
            or marker_holds(requirement.marker, machine, python)
        ]

    first = [python.removesuffix("t") for python in at_hand(demand.preferred, machine)]
    pythons = [*filter(_PYTHONS.__contains__, first), *_PYTHONS]
    suitable = [
        python
        for python in pythons
        if demand.suits(python) or demand.suits(f"{python}t")
    ]
    ours = holding((suitable or pythons)[0])
    alike = frozenset(python for python in _PYTHONS if holding(python) == ours)
    return ours, replace(demand, pythons=alike)


def _of_family(
    whole: Demand,
    requirements: Iterable[ParsedRequirement],
    backend: str | None,
) -> Demand:
    """Return a demand together with what some requirements say of torch and its companions."""
    companions: dict[str, ParsedRequirement] = {}
    tags = [backend] if backend else []
    for requirement in requirements:
        if requirement.url:
            raise UsageError(
                "requirement-by-address",
                f"{requirement.name} is requested by URL, but gpuinstall chooses the file itself",
                hint=f"ask for {requirement.name}, or for a version of it",
            )
        unlabelled = _unlabelled(requirement, tags)
        earlier = companions.get(requirement.name)
        if earlier:
            unlabelled = earlier.narrowed(unlabelled)
        companions[requirement.name] = unlabelled
    torch = companions.pop("torch", ParsedRequirement("torch", "torch"))
    return replace(
        whole,
        torch=torch.specifier,
        extras=torch.extras,
        family=companions,
        backends=frozenset(map(_backend, tags)),
    )


def _unlabelled(requirement: ParsedRequirement, tags: list[str]) -> ParsedRequirement:
    """Return a requirement whose versions carry no backend, as ``==2.15.0+cu132`` does; its tag goes to ``tags``."""
    specifiers = []
    has_label = False
    for specifier in requirement.specifier or ():
        text = str(specifier)
        labelled = re.fullmatch(r"===?\s*([^+]+)\+(.+)", text)
        if labelled:
            tag = labelled[2].lower()
            if is_like_a_tag(tag):
                has_label = True
                tags.append(tag)
                text = f"=={labelled[1]}"
        specifiers.append(text)
    if not has_label:
        return requirement
    joined = ",".join(specifiers)
    return requirement._replace(specifier=parse_specifier(joined))


def _backend(tag: str) -> Backend:
    if any(tag == vendor.torch_device for vendor in VENDORS.values()):
        raise UsageError(
            "backend-malformed",
            f"{tag!r} is torch's name for a GPU, not a backend",
            hint="Leave out --backend: the build for this GPU is chosen",
        )
    backend = known_backend(tag)
    kinds = {CPU.kind, *(vendor.kind for vendor in VENDORS.values())}
    if backend is None or backend.kind not in kinds:
        raise UsageError(
            "backend-malformed",
            f"{tag!r} is not a backend such as cu126 or cpu",
            hint="Backends are cu126, rocm7.2, xpu, cpu and others",
        )
    return backend


def _python(text: str | None) -> SpecifierSet | str | None:
    if text is None:
        return None
    exact = re.fullmatch(r"(3\.[0-9]+)(?:\.[0-9]+)?(t?)", text)
    if exact:
        return exact[1] + exact[2]
    try:
        return parse_specifier(text)
    except ValueError:
        message = f"{text!r} is not a Python version such as 3.12"
        raise UsageError("python-malformed", message) from None
