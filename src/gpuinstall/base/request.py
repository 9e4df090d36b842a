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
    """The choices of whoever starts a run about its packages; pip's and uv's own settings count beside them."""

    torch_index: str | None = None
    """The base of PyTorch's index; None is the configured one, or the official one."""

    extension_sources: tuple[str, ...] = ()
    """Further pages of prebuilt extensions."""

    wheels: Path | None = None
    """A folder whose files come before those of every other source."""

    offline: bool = False
    """Whether only caches and folders are read."""

    only_binary: bool = False
    """Whether no package's own code runs while it is built."""


DEFAULT_SOURCING = Sourcing()


class Request(Value):
    """The request for an environment, or a project's part of it.

    The API gives requirements and constraints as a text or a list of texts, which are parsed here.
    """

    requirements: tuple[Requirement, ...] = (ANY_TORCH,)
    """Packages by name, by address, and editable folders."""

    python: str | None = None
    """The interpreter's ``X.Y``, or a specifier.

    For ``install`` and ``lock`` also its path.
    """

    backend: str | None = None
    """A tag that is forced, such as ``cu126`` or ``cpu``."""

    gpus: tuple[str | int, ...] | None = None
    """Indices or UUIDs of the GPUs to plan for; None: all."""

    allowed_backends: tuple[str, ...] | None = None
    """The tags that a team allows; None: all."""

    preferred_pythons: tuple[str, ...] = ()
    """The ``X.Y`` to try, in this order, before the newest that the machine has."""

    managed_pythons: bool = True
    """Whether Pythons that the machine lacks can be fetched."""

    constraints: tuple[Constraint, ...] = ()

    files: Mapping[str, tuple[Requirement, ...]] = {}
    """The requirements and constraints of each file, by relative path.

    Those that no file has were added by hand.
    """

    extras: tuple[str, ...] = ()
    """Extras of the folder's pyproject.toml that the API requests."""

    selected: Mapping[str, tuple[Requirement, ...]] = {}
    """The requirements of each selected extra or group."""

    revision: int = 0
    """How often the request of its folder has changed: of locks that disagree, those with the highest count."""

    preferred: tuple[Constraint, ...] = ()
    """The versions of uv.lock or poetry.lock, which are preferences."""

    preferred_backend: str | None = None
    """A tag that is taken if a build of the chosen torch has it and runs."""

    sources: tuple[str, ...] = ()
    """What files say of where packages come from and which files they are."""

    build_files_digest: str = ""
    """The digest of the build files of the folders among them whose requirements only a build backend can read."""

    targets: tuple[str, ...] = ()
    """What a project is locked for, such as ``cu126``; empty: what its locks are for, or this machine."""

    newest_per_target: bool = False
    """Whether each target has its own newest torch, if no version serves all."""

    relax: bool = False
    """Whether a request that cannot be met as it is written is met as near to its words as it can be."""

    required_python: str | None = None
    """The specifier of a project, which a Python that is named otherwise has to be within."""

    places: Mapping[str, TextOrigin] = {}
    """The origin of each requested Python and backend."""

    sourcing: Sourcing = DEFAULT_SOURCING
    """How packages are had."""

    def __hash__(self) -> int:
        # A dict has no hash: the files are compared alone.
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
        """Parse the texts of a caller.

        Raises:
            TypeError: An argument has another type.
            UsageError: A text is malformed.
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
        """Whether the CPU's build is asked for by name."""
        return self.backend == CPU.tag

    @property
    def is_for_gpus(self) -> bool:
        """Whether a build for GPUs is asked for by name."""
        return self.backend not in {None, CPU.tag}


def check_text(name: str, value: object) -> None:
    """Raise TypeError for an argument that is neither a string nor None."""
    if not isinstance(value, str | None):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")


def listed(name: str, value: Any, kinds: Any = str) -> tuple[Any, ...]:
    """Return the values of an argument that is a string or a list.

    Args:
        name: The argument.
        value: Its value.
        kinds: The types of the values.

    Raises:
        TypeError: It is anything else.
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
"""A request without requirements: the folder's count."""


def split_torch_index(address: str) -> tuple[str, str | None]:
    """Return the base of a PyTorch index, and the backend that PyTorch's own instructions have at its end, if any."""
    match = re.fullmatch(_TORCH_INDEX, address)
    if match is None:
        return address, None
    return match["base"], match["backend"]
