"""A Request, parsed: what it says of torch, of torch's companions, of the backend, of Python, of the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.backend import CPU, Backend, is_like_a_tag, known_backend
from gpuinstall.errors import UsageError
from gpuinstall.plan.python import at_hand, number
from gpuinstall.plan.requirement import Asked, marker_holds, parse_requirement, parse_specifier
from gpuinstall.vendors import VENDORS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from gpuinstall.machine import Machine
    from gpuinstall.request import Request

_PYTHONS = tuple(f"3.{minor}" for minor in range(7, 30))
_LABELLED = r"===?\s*([^+]+)\+(.+)"


class Demand(NamedTuple):
    """What must hold of a plan."""

    torch: SpecifierSet | None
    """The specifiers of all its requirements together, without local versions, which go into ``backends``."""

    extras: str
    """Those of torch, as in ``[opt-einsum]``."""

    family: dict[str, Asked]
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
        if self.python is None or isinstance(self.python, str):
            return self.python in {None, python}
        named = (
            part.version
            for part in self.python
            if re.fullmatch(rf"{re.escape(minor)}\.[0-9]+", part.version)
        )
        return any(self.python.contains(patch) for patch in (f"{minor}.0", f"{minor}.99", *named))


def parse_request(request: Request, family: frozenset[str], machine: Machine) -> tuple[Demand, ...]:
    """Return what a request demands on a machine.

    If markers make it another request for another Python there are several demands, each for its own Pythons; they
    come in the order in which the Pythons are to be tried.

    Raises:
        UsageError: The request is malformed.
    """
    requirements = [parse_requirement(text) for text in request.requirements]
    names = {"torch"} | {requirement.name for requirement in requirements}
    allowed = [
        requirement
        for requirement in map(parse_requirement, request.constraints)
        if requirement.name in names
    ]
    ours = [requirement for requirement in (*requirements, *allowed) if requirement.name in family]
    marked = [requirement for requirement in ours if requirement.marker is not None]
    whole = Demand(
        torch=None,
        extras="",
        family={},
        others=tuple(
            requirement.text for requirement in requirements if requirement.name not in family
        ),
        backends=frozenset(),
        allowed=request.allowed_backends,
        python=_python(request.python),
        preferred=request.preferred_pythons,
        managed=request.managed_pythons,
        gpus=request.gpus,
        preferred_backend=known_backend(request.preferred_backend),
    )
    if not marked:
        return (_of_family(whole, ours, request.backend),)
    demands = []
    for holding, pythons in _by_markers(marked, whole, machine).items():
        family_requirements = [one for one in ours if one.marker is None or one in holding]
        demands.append(
            _of_family(whole._replace(pythons=pythons), family_requirements, request.backend)
        )
    return tuple(demands)


def _of_family(whole: Demand, requirements: list[Asked], backend: str | None) -> Demand:
    companions, tags = _joined(requirements)
    torch = companions.pop("torch", Asked("torch", "torch"))
    backends = frozenset(_backend(tag) for tag in (*tags, *filter(None, [backend])))
    return whole._replace(
        torch=torch.specifier, extras=torch.extras, family=companions, backends=backends
    )


def _by_markers(
    marked: list[Asked], whole: Demand, machine: Machine
) -> dict[tuple[Asked, ...], frozenset[str] | None]:
    """Group the Pythons that are requested by the requirements whose markers hold there; None: all alike."""
    groups: dict[tuple[Asked, ...], list[str]] = {}
    first = (python.removesuffix("t") for python in at_hand(whole.preferred, machine))
    newest_first = sorted(_PYTHONS, key=number, reverse=True)
    ordered = list(
        dict.fromkeys((*(python for python in first if python in _PYTHONS), *newest_first))
    )
    suitable = [python for python in ordered if whole.suits(python) or whole.suits(f"{python}t")]
    markers = [
        (requirement, requirement.marker)
        for requirement in marked
        if requirement.marker is not None
    ]
    for python in suitable or ordered:
        holding = tuple(
            requirement for requirement, marker in markers if marker_holds(marker, machine, python)
        )
        groups.setdefault(holding, []).append(python)
    if len(groups) == 1:
        return dict.fromkeys(groups)
    return {holding: frozenset(group) for holding, group in groups.items()}


def _joined(requirements: Iterable[Asked]) -> tuple[dict[str, Asked], list[str]]:
    """Return one requirement for each package, and the backends that local versions name."""
    joined: dict[str, Asked] = {}
    backends = []
    for requirement in requirements:
        if requirement.url:
            name, hint = requirement.name, f"ask for {requirement.name}, or for a version of it"
            message = f"{name} is requested by URL, but gpuinstall chooses the file itself"
            raise UsageError("requirement-by-address", message, hint=hint)
        plain, tags = _unlabelled(requirement)
        backends += tags
        earlier = joined.get(plain.name)
        joined[plain.name] = earlier.narrowed(plain) if earlier else plain
    return joined, backends


def _unlabelled(requirement: Asked) -> tuple[Asked, list[str]]:
    """Take the backends out of what a requirement says of versions: ``==2.15.0+cu132``."""
    specifiers = [str(specifier) for specifier in requirement.specifier or ()]
    labels = [_label(text) for text in specifiers]
    if not any(labels):
        return requirement, []
    pairs = zip(specifiers, labels, strict=True)
    plain = ",".join(re.sub(_LABELLED, r"==\1", text) if label else text for text, label in pairs)
    return requirement._replace(specifier=parse_specifier(plain)), [
        label for label in labels if label
    ]


def _label(specifier: str) -> str | None:
    """Return the backend's tag that a specifier such as ``==2.15.0+cu132`` ends with."""
    match = re.fullmatch(_LABELLED, specifier)
    return match[2].lower() if match and is_like_a_tag(match[2].lower()) else None


def _backend(tag: str) -> Backend:
    backend = known_backend(tag)
    if tag in {vendor.torch_device for vendor in VENDORS.values()}:
        message = f"{tag!r} is torch's name for a GPU, not a backend"
        raise UsageError(
            "backend-malformed",
            message,
            hint="Leave out --backend: the build for this GPU is chosen",
        )
    if backend is None or not (
        backend == CPU or backend.kind in {vendor.kind for vendor in VENDORS.values()}
    ):
        message = f"{tag!r} is not a backend such as cu126 or cpu"
        raise UsageError(
            "backend-malformed", message, hint="Backends are cu126, rocm7.2, xpu, cpu and others"
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
        raise UsageError(
            "python-malformed", f"{text!r} is not a Python version such as 3.12"
        ) from None
