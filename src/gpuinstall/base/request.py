"""Classes for the user's request and its package sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import force_setattr

from gpuinstall.base.requirement import (
    Constraint,
    Requirement,
    TextOrigin,
    parse_requirement,
)
from gpuinstall.base.values import Value
from gpuinstall.base.versions import CPU, TAG_PATTERN

if TYPE_CHECKING:
    from pathlib import Path

    Texts = str | Iterable[str | Requirement]

ANY_TORCH = Requirement("torch")
_CALLER = TextOrigin("the request")

_TORCH_INDEX = rf"(?P<base>.+/.+)/(?P<backend>{TAG_PATTERN})/?"


class Sourcing(Value):
    """Package sources that the user adds to the settings of pip and uv."""

    torch_index: str | None = None
    """The base URL of PyTorch's index. None: the configured index."""

    addresses: Mapping[str, tuple[str, ...]] = {}
    """The values of uv's options for indexes and find-links, by option."""

    no_sources: bool = False
    """Whether ``[tool.uv.sources]`` is ignored."""

    extension_sources: tuple[str, ...] = ()
    """Additional index pages of prebuilt extensions."""

    wheels: Path | None = None
    """A folder of files that have priority over all other sources."""

    offline: bool = False
    """Whether to read only caches and folders."""

    only_binary: bool = False
    """Whether the folder forbids builds that run a package's own code."""


DEFAULT_SOURCING = Sourcing()


class Request(Value):
    """Packages and conditions that the user requests for an environment.

    The API accepts strings for requirements and constraints.
    """

    requirements: tuple[Requirement, ...] = (ANY_TORCH,)
    """The requested packages, direct references, and editable folders."""

    python: str | None = None
    """The Python version or specifier. Some commands also accept a path."""

    backend: str | None = None
    """The only allowed backend tag, such as ``cu126`` or ``cpu``."""

    gpus: tuple[str | int, ...] | None = None
    """Indices or UUIDs of the GPUs to plan for. None: all."""

    allowed_backends: tuple[str, ...] | None = None
    """The backend tags that the project allows. None: all tags."""

    preferred_pythons: tuple[str, ...] = ()
    """The Pythons to try before the latest one, as ``X.Y`` or ``X.Y.Z``."""

    managed_pythons: bool = True
    """Whether a missing Python can be downloaded."""

    constraints: tuple[Constraint, ...] = ()

    files: Mapping[str, tuple[Requirement, ...]] = {}
    """The requirements and constraints in each file, by relative path.

    Requirements that are in no file were added on the command line.
    """

    no_groups: tuple[str, ...] = ()
    """The default groups that are not installed, or ``:all:``."""

    extras: tuple[str, ...] = ()
    """Extras in the folder's pyproject.toml that the API requests."""

    selected: Mapping[str, tuple[Requirement, ...]] = {}
    """The requirements of each selected extra or dependency group."""

    revision: int = 0
    """The number of times that the folder's request was changed.

    If lock files have different requests, the highest revision is used.
    """

    preferred: tuple[Constraint, ...] = ()
    """Preferred versions from uv.lock or poetry.lock."""

    preferred_backend: str | None = None
    """The backend tag to prefer among builds of the selected torch."""

    sources: tuple[str, ...] = ()
    """The sources and hashes that files specify for packages."""

    build_files_digest: str = ""
    """A digest of the build files in folders with dynamic requirements."""

    targets: tuple[str, ...] = ()
    """The targets to lock, such as ``cu126``. Empty: the existing targets."""

    newest_per_target: bool = False
    """Whether each target uses its own latest torch."""

    relax: bool = False
    """Whether to replace pins that cannot work with compatible versions."""

    required_python: str | None = None
    """The project's requires-python, which also limits ``python``."""

    places: Mapping[str, TextOrigin] = {}
    """The origins of Python, backend, and allowed backends, by their text."""

    sourcing: Sourcing = DEFAULT_SOURCING

    def __hash__(self) -> int:
        # A dict cannot be hashed, so ``files`` is only compared.
        return hash((self.requirements, self.python, self.backend, self.gpus))

    if TYPE_CHECKING:

        def __init__(
            self,
            requirements: Texts = ...,
            python: str | None = ...,
            backend: str | None = ...,
            gpus: Iterable[str | int] | str | None = ...,
            *,
            allowed_backends: tuple[str, ...] | None = ...,
            preferred_pythons: tuple[str, ...] = ...,
            managed_pythons: bool = ...,
            constraints: Texts = ...,
            files: Mapping[str, tuple[Requirement, ...]] = ...,
            no_groups: tuple[str, ...] = ...,
            extras: str | Iterable[str] = ...,
            selected: Mapping[str, tuple[Requirement, ...]] = ...,
            revision: int = ...,
            preferred: Texts = ...,
            preferred_backend: str | None = ...,
            sources: tuple[str, ...] = ...,
            build_files_digest: str = ...,
            targets: str | Iterable[str] = ...,
            newest_per_target: bool = ...,
            relax: bool = ...,
            required_python: str | None = ...,
            places: Mapping[str, TextOrigin] = ...,
            sourcing: Sourcing = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Parse strings that the API passes.

        Raises:
            TypeError: An argument has the wrong type.
            UsageError: A requirement is malformed.
        """
        for name in ("python", "backend"):
            value = getattr(self, name)
            if not isinstance(value, str | None):
                raise TypeError(f"{name} must be a string, not {type(value).__name__}")
        requirements = _parse_requirements("requirements", self.requirements)
        force_setattr(self, "requirements", requirements)
        for name in ("constraints", "preferred"):
            constraints = [
                one if isinstance(one, Constraint) else one.constraint
                for one in _parse_requirements(name, getattr(self, name))
            ]
            force_setattr(self, name, tuple(constraints))
        for name in ("extras", "targets"):
            force_setattr(self, name, parse_argument_values(name, getattr(self, name)))
        if self.gpus is not None:
            force_setattr(
                self, "gpus", parse_argument_values("gpus", self.gpus, str | int)
            )

    @property
    def is_for_cpu(self) -> bool:
        """Whether the CPU build is requested explicitly."""
        return self.backend == CPU.tag

    @property
    def is_for_gpus(self) -> bool:
        """Whether a GPU build is requested explicitly."""
        return self.backend not in {None, CPU.tag}


def parse_argument_values(name: str, value: Any, kinds: Any = str) -> tuple[Any, ...]:
    """Convert an API argument, one value or a collection, to its values.

    Args:
        name: The name of the argument.
        value: The value of the argument.
        kinds: The allowed types of a value.

    Raises:
        TypeError: A value has another type.
    """
    if isinstance(value, str):
        return (value,)
    values = tuple(value) if isinstance(value, list | tuple | set) else (value,)
    for one in values:
        if isinstance(one, bool) or not isinstance(one, kinds):
            kind = type(one).__name__
            raise TypeError(f"{name} must be a string or a list of strings, not {kind}")
    return values


def _parse_requirements(name: str, value: object) -> tuple[Requirement, ...]:
    return tuple(
        parse_requirement(one, _CALLER) if isinstance(one, str) else one
        for one in parse_argument_values(name, value, str | Requirement)
    )


FOLDER_REQUEST = Request(())
"""A request without requirements, which selects the folder's requirements."""


def split_torch_index(address: str) -> tuple[str, str | None]:
    """Split a PyTorch index URL into its base and its backend, if any."""
    match = re.fullmatch(_TORCH_INDEX, address)
    if match is None:
        return address, None
    return match["base"], match["backend"]
