"""A Request, parsed: what it says of torch, of torch's companions, of the backend, of Python, of the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.errors import UsageError
from gpuinstall.plan.requirement import parse_requirement, parse_specifier

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from gpuinstall.plan.requirement import Asked
    from gpuinstall.request import Request

_BACKEND = r"cpu|cu[0-9]{2,3}"
_LOCAL = r"(===?)\s*([^+]+)\+(\w+)"


class Demand(NamedTuple):
    """What must hold of a plan.

    ``torch`` are the specifiers of all its requirements together, without local versions, which go into
    ``backends``; ``extras`` are those of torch, as in ``[opt-einsum]``; ``family`` are the companions asked for, by
    name; ``others`` the requirements that have nothing to do with the choice; ``python`` is a specifier, or an exact
    ``X.Y``.
    """

    torch: SpecifierSet | None
    extras: str
    family: dict[str, Asked]
    others: tuple[str, ...]
    backends: frozenset[str]
    allowed: tuple[str, ...] | None
    python: SpecifierSet | str | None
    preferred: tuple[str, ...]
    managed: bool

    def wants(self, torch: Version) -> bool:
        """Say whether a torch version satisfies the requirements."""
        return self.torch is None or self.torch.contains(torch)

    def suits(self, python: str) -> bool:
        """Say whether the Python ``X.Y`` is one that is asked for."""
        if self.python is None or isinstance(self.python, str):
            return self.python in {None, python}
        minor = python.removesuffix("t")
        return any(self.python.contains(f"{minor}.{patch}") for patch in ("0", "99"))


def parse_request(request: Request, family: frozenset[str]) -> Demand:
    """Parse a request; raise UsageError for a malformed one."""
    requirements = [parse_requirement(text) for text in request.requirements]
    ours = [requirement for requirement in requirements if requirement.name in family]
    asked = [requirement for requirement in ours if requirement.name == "torch"]
    torch, backends = _torch(asked)
    return Demand(
        torch=torch,
        extras=next((requirement.extras for requirement in asked if requirement.extras), ""),
        family=_companions(ours),
        others=tuple(requirement.text for requirement in requirements if requirement.name not in family),
        backends=frozenset(_backend(tag) for tag in (*backends, *filter(None, [request.backend]))),
        allowed=request.allowed_backends,
        python=_python(request.python),
        preferred=request.preferred_pythons,
        managed=request.managed_pythons,
    )


def _torch(requirements: list[Asked]) -> tuple[SpecifierSet | None, list[str]]:
    """Join what is said of torch, with local versions (``==2.15.0+cu132``) taken off as backends."""
    specifiers, backends = [], []
    for requirement in requirements:
        _refuse_address(requirement)
        for specifier in requirement.specifier or ():
            local = re.fullmatch(_LOCAL, str(specifier))
            specifiers.append(f"=={local[2]}" if local else str(specifier))
            backends += [local[3]] if local else []
    return parse_specifier(",".join(specifiers)) if specifiers else None, backends


def _companions(family: list[Asked]) -> dict[str, Asked]:
    companions: dict[str, Asked] = {}
    for requirement in family:
        _refuse_address(requirement)
        if requirement.name != "torch":
            earlier = companions.get(requirement.name)
            companions[requirement.name] = earlier.narrowed(requirement) if earlier else requirement
    return companions


def _refuse_address(requirement: Asked) -> None:
    if requirement.url:
        message = f"{requirement.name} is asked for by its address; gpuinstall chooses the file itself"
        raise UsageError("requirement-by-address", message, hint=f"ask for {requirement.name}, or for a version of it")


def _backend(tag: str) -> str:
    if not re.fullmatch(_BACKEND, tag):
        message = f"{tag!r} is not a backend such as cu126 or cpu"
        raise UsageError("backend-malformed", message, hint="gpuinstall installs builds for NVIDIA GPUs and the CPU")
    return tag


def _python(text: str | None) -> SpecifierSet | str | None:
    if text is None:
        return None
    exact = re.fullmatch(r"(3\.[0-9]+)(?:\.[0-9]+)?(t?)", text)
    if exact:
        return exact[1] + exact[2]
    try:
        return parse_specifier(text)
    except ValueError:
        raise UsageError("python-malformed", f"{text!r} is not a Python version such as 3.12") from None
