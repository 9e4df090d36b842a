"""A Request, parsed: what it says of torch, of torch's companions, of the backend, of Python, of the rest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from gpuinstall.errors import UsageError

if TYPE_CHECKING:
    from packaging.version import Version

    from gpuinstall.request import Request

_BACKEND = re.compile(r"cpu|cu[0-9]{2,3}")
_LOCAL = re.compile(r"^(===?)\s*([^+]+)\+(\w+)$")


@dataclass(frozen=True)
class Demand:
    """What must hold of a plan.

    ``torch`` are the specifiers of all its requirements together, without local versions, which go into
    ``backends``; ``extras`` are those of torch, as in ``[opt-einsum]``; ``family`` are the companions asked for, by
    name; ``others`` the requirements that have nothing to do with the choice; ``python`` is a specifier, or an exact
    ``X.Y``.
    """

    torch: SpecifierSet
    extras: str
    family: dict[str, Requirement]
    others: tuple[str, ...]
    backends: frozenset[str]
    allowed: tuple[str, ...] | None
    python: SpecifierSet | str | None
    preferred: tuple[str, ...]
    managed: bool

    @property
    def backend(self) -> str | None:
        """The backend that is asked for."""
        return next(iter(sorted(self.backends)), None)

    def wants(self, torch: Version) -> bool:
        """Say whether a torch version satisfies the requirements."""
        return not self.torch or self.torch.contains(torch)

    def suits(self, python: str) -> bool:
        """Say whether the Python ``X.Y`` is one that is asked for."""
        if isinstance(self.python, SpecifierSet):
            minor = python.removesuffix("t")
            return any(self.python.contains(f"{minor}.{patch}") for patch in ("0", "99"))
        return self.python in {None, python}


def parse_request(request: Request, family: frozenset[str]) -> Demand:
    """Parse a request; raise UsageError for a malformed one."""
    requirements = [parse_requirement(text) for text in request.requirements]
    named = [(canonicalize_name(requirement.name), requirement) for requirement in requirements]
    asked = [requirement for name, requirement in named if name == "torch"]
    torch, backends = _torch(asked)
    extras = sorted(set().union(*(requirement.extras for requirement in asked)))
    companions: dict[str, Requirement] = {}
    for name, requirement in named:
        if name in family and name != "torch":
            companions[name] = _merged(companions.get(name), requirement)
    return Demand(
        torch=torch,
        extras=f"[{','.join(extras)}]" if extras else "",
        family=companions,
        others=tuple(str(requirement) for name, requirement in named if name not in family),
        backends=frozenset(_backend(tag) for tag in (*backends, *filter(None, [request.backend]))),
        allowed=request.allowed_backends,
        python=_python(request.python),
        preferred=request.preferred_pythons,
        managed=request.managed_pythons,
    )


def parse_requirement(text: str) -> Requirement:
    """Parse one requirement; raise UsageError for a malformed one."""
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise UsageError("requirement-malformed", f"{text!r} is not a requirement: {reason}") from None


def _torch(requirements: list[Requirement]) -> tuple[SpecifierSet, list[str]]:
    specifiers, backends = [], []
    for requirement in requirements:
        _refuse_address(requirement)
        for specifier in requirement.specifier:
            local = _LOCAL.match(str(specifier))
            specifiers.append(f"=={local[2]}" if local else str(specifier))
            backends += [local[3]] if local else []
    return SpecifierSet(",".join(specifiers)), backends


def _merged(one: Requirement | None, other: Requirement) -> Requirement:
    _refuse_address(other)
    if one is not None:
        other.specifier &= one.specifier
    return other


def _refuse_address(requirement: Requirement) -> None:
    if requirement.url:
        message = f"{requirement.name} is asked for by its address; gpuinstall chooses the file itself"
        raise UsageError("requirement-by-address", message, hint=f"ask for {requirement.name}, or for a version of it")


def _backend(tag: str) -> str:
    if not _BACKEND.fullmatch(tag):
        message = f"{tag!r} is not a backend such as cu126 or cpu"
        raise UsageError("backend-malformed", message, hint="gpuinstall installs builds for NVIDIA GPUs and the CPU")
    return tag


def _python(text: str | None) -> SpecifierSet | str | None:
    if text is None:
        return None
    exact = re.fullmatch(r"(3\.\d+)(?:\.\d+)?(t?)", text)
    if exact:
        return exact[1] + exact[2]
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        raise UsageError("python-malformed", f"{text!r} is not a Python version such as 3.12") from None
