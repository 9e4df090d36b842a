"""The request of a user, and the sources of its packages."""

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
from gpuinstall.base.versions import CPU

if TYPE_CHECKING:
    from pathlib import Path

    Texts = str | Iterable[str | Requirement]

ANY_TORCH = Requirement("torch", "torch")
_CALLER = TextOrigin("the request")

_TORCH_INDEX = r"(?P<base>.+/.+)/(?P<backend>cpu|xpu|cu\d+|rocm[\d.]+)/?"


class Sourcing(Value):
    """Sources of packages, in addition to the settings of pip and uv."""

    torch_index: str | None = None
    """The base URL of PyTorch's index; None for the configured one."""

    extension_sources: tuple[str, ...] = ()
    """Further pages of prebuilt extensions."""

    wheels: Path | None = None
    """A folder of files that precede all other sources."""

    offline: bool = False
    """Whether to read only caches and folders."""

    only_binary: bool = False
    """Whether no build may run a package's own code."""


DEFAULT_SOURCING = Sourcing()


class Request(Value):
    """Request for an environment, or a project's part of it.

    The API may pass strings for requirements and constraints.
    """

    requirements: tuple[Requirement, ...] = (ANY_TORCH,)
    """Packages by name or address, and editable folders."""

    python: str | None = None
    """An ``X.Y`` or a specifier; for ``install`` and ``lock`` also a path."""

    backend: str | None = None
    """The only allowed tag, such as ``cu126`` or ``cpu``."""

    gpus: tuple[str | int, ...] | None = None
    """Indices or UUIDs of the GPUs to plan for; None is all."""

    allowed_backends: tuple[str, ...] | None = None
    """The tags that the project allows; None is all."""

    preferred_pythons: tuple[str, ...] = ()
    """The ``X.Y`` to try, in this order, before the machine's latest."""

    managed_pythons: bool = True
    """Whether a missing Python can be downloaded."""

    constraints: tuple[Constraint, ...] = ()

    files: Mapping[str, tuple[Requirement, ...]] = {}
    """The requirements and constraints of each file, by relative path.

    The others were added on the command line.
    """

    extras: tuple[str, ...] = ()
    """Extras of the folder's pyproject.toml that the API requests."""

    selected: Mapping[str, tuple[Requirement, ...]] = {}
    """The requirements of each selected extra or group."""

    revision: int = 0
    """The number of changes of the folder's request.

    If lock files have different requests, those with the highest number count.
    """

    preferred: tuple[Constraint, ...] = ()
    """The versions of uv.lock or poetry.lock, which are preferences."""

    preferred_backend: str | None = None
    """A tag to prefer among the builds of the selected torch."""

    sources: tuple[str, ...] = ()
    """The sources and hashes that files give for packages."""

    build_files_digest: str = ""
    """The digest of the build files of folders with dynamic requirements."""

    targets: tuple[str, ...] = ()
    """The targets, such as ``cu126``; empty for the existing ones."""

    newest_per_target: bool = False
    """Whether each target may have its own latest torch."""

    relax: bool = False
    """Whether pins that cannot work here may change to compatible versions."""

    required_python: str | None = None
    """The requires-python of the project, which also limits ``python``."""

    places: Mapping[str, TextOrigin] = {}
    """The origin of each requested Python and backend."""

    sourcing: Sourcing = DEFAULT_SOURCING

    def __hash__(self) -> int:
        # A dict cannot be hashed: ``files`` are only compared.
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
        """Parse the strings of the API.

        Raises:
            TypeError: An argument has a wrong type.
            UsageError: A requirement is malformed.
        """
        for name in ("python", "backend"):
            check_text(name, getattr(self, name))
        requirements = _parsed("requirements", self.requirements)
        force_setattr(self, "requirements", requirements)
        for name in ("constraints", "preferred"):
            constraints = [
                one if isinstance(one, Constraint) else one.constraint
                for one in _parsed(name, getattr(self, name))
            ]
            force_setattr(self, name, tuple(constraints))
        for name in ("extras", "targets"):
            force_setattr(self, name, listed(name, getattr(self, name)))
        if self.gpus is not None:
            force_setattr(self, "gpus", listed("gpus", self.gpus, str | int))

    @property
    def is_for_cpu(self) -> bool:
        """Whether the CPU build is requested explicitly."""
        return self.backend == CPU.tag

    @property
    def is_for_gpus(self) -> bool:
        """Whether a GPU build is requested explicitly."""
        return self.backend not in {None, CPU.tag}


def check_text(name: str, value: object) -> None:
    """Raise TypeError for an argument that is neither a string nor None."""
    if not isinstance(value, str | None):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")


def listed(name: str, value: Any, kinds: Any = str) -> tuple[Any, ...]:
    """Return the values of an argument that is one value or a collection.

    Args:
        name: The name of the argument.
        value: Its value.
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


def _parsed(name: str, value: object) -> tuple[Requirement, ...]:
    return tuple(
        parse_requirement(one, _CALLER) if isinstance(one, str) else one
        for one in listed(name, value, str | Requirement)
    )


FOLDERS_OWN = Request(())
"""A request without requirements, for the folder's own."""


def split_torch_index(address: str) -> tuple[str, str | None]:
    """Split a PyTorch index URL into its base and backend, if any."""
    match = re.fullmatch(_TORCH_INDEX, address)
    if match is None:
        return address, None
    return match["base"], match["backend"]
