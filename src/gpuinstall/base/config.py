"""Read project settings from pyproject.toml and ``.python-version``."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuinstall.base.advice import Hint
from gpuinstall.base.codec import MalformedError, read_object
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import (
    find_link_hints,
    hide_linked_text,
    parse_toml,
    read_document,
)
from gpuinstall.base.request import FOLDER_REQUEST, Request, Sourcing, split_torch_index
from gpuinstall.base.requirement import (
    TextOrigin,
    normalize_name,
    parse_requirement,
)
from gpuinstall.base.shapes import PYPROJECT, ShapeError, check_shape
from gpuinstall.base.values import Value, replace


class _Settings(Value):
    """Keys of ``[tool.gpuinstall]``, with underscores for hyphens."""

    requirements: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    backends: tuple[str, ...] | None = None
    extension_sources: tuple[str, ...] = ()
    python: str | None = None
    torch_index: str | None = None
    only_binary: bool = False
    per_target: bool = False


_PROJECT = TextOrigin("pyproject.toml")
_PINNED = TextOrigin(".python-version")
_REQUIREMENTS = TextOrigin("pyproject.toml", "[tool.gpuinstall] requirements")
_KEYS = {name.replace("_", "-"): name for name in _Settings.__struct_fields__}


def read_config(folder: Path, groups: Collection[str] = ()) -> Request:
    """Read the request from the project settings in a folder.

    Args:
        folder: The folder.
        groups: The requested dependency groups.

    Raises:
        UsageError: The settings are malformed.
    """
    project = folder / "pyproject.toml"
    pinned = folder / ".python-version"
    pyproject: Mapping[str, Any] = {}
    version = ""
    file = project
    try:
        if os.path.lexists(project):
            text = read_document(project, folder)
            with hide_linked_text(project):
                pyproject = parse_toml(text)
        file = pinned
        if os.path.lexists(pinned):
            version = read_document(pinned, folder)
    except (OSError, ValueError) as error:
        # tomli adds lines with the position.
        reason, *_ = str(getattr(error, "strerror", error)).splitlines()
        raise _malformed(
            f"cannot be read: {reason.rstrip(' :')}", find_link_hints(error), file.name
        ) from None
    with hide_linked_text(project):
        return parse_config(pyproject, version, groups)


def parse_config(
    pyproject: Mapping[str, Any],
    python_version: str = "",
    groups: Collection[str] = (),
) -> Request:
    """Parse the request in a pyproject.toml and a ``.python-version``.

    Args:
        pyproject: The parsed document. Empty if the file does not exist.
        python_version: The text. Empty if the file does not exist.
        groups: The requested dependency groups.

    Raises:
        UsageError: A setting is malformed.
    """
    if not (pyproject or python_version):
        return FOLDER_REQUEST
    try:
        check_shape(pyproject, PYPROJECT)
    except ShapeError as error:
        raise _malformed(str(error)) from None
    tool = pyproject.get("tool", {})
    poetry = tool.get("poetry", {}).get("dependencies", {})
    values = {}
    for key, value in tool.get("gpuinstall", {}).items():
        if key not in _KEYS:
            raise _malformed(
                f"unknown key {key!r} in [tool.gpuinstall]",
                (f"Supported keys: {', '.join(_KEYS)}",),
            )
        values[_KEYS[key]] = value
    try:
        settings = read_object(_Settings, values, "[tool.gpuinstall]")
    except MalformedError as fault:
        raise _malformed(str(fault)) from None
    own = pyproject.get("project", {}).get("requires-python")
    pythons = [own or _read_poetry_python(poetry), *_find_group_pythons(tool, groups)]
    required = ",".join(filter(None, pythons)) or None
    pinned = _find_first_python(python_version)
    python = settings.python or pinned or required
    place = _PINNED if python == pinned else _PROJECT
    torch_index, backend = split_torch_index(settings.torch_index or "")
    preferred = _read_poetry_backend(poetry)
    places = {python: place} if python else {}
    if preferred:
        places[preferred] = TextOrigin(
            _PROJECT.file, "torch in [tool.poetry.dependencies]"
        )
    allowed, key = settings.backends, "backends"
    # An index URL with a backend has no builds for other backends.
    if allowed is None and backend:
        allowed, key = (backend,), "torch-index"
    if allowed is not None:
        places[str(allowed)] = TextOrigin(_PROJECT.file, f"[tool.gpuinstall] {key}")
    return replace(
        FOLDER_REQUEST,
        requirements=tuple(
            parse_requirement(text, _REQUIREMENTS) for text in settings.requirements
        ),
        python=python,
        required_python=required,
        places=places,
        allowed_backends=allowed,
        preferred_backend=preferred,
        targets=settings.targets,
        newest_per_target=settings.per_target,
        sourcing=Sourcing(
            torch_index=torch_index or None,
            extension_sources=settings.extension_sources,
            only_binary=settings.only_binary,
        ),
    )


def _find_first_python(python_version: str) -> str | None:
    """Return the first CPython version in a ``.python-version`` file."""
    # pyenv accepts several lines, and uv accepts specifiers. The first line can be PyPy.
    line = re.search(
        r"(?m)^\s*(?:(?:c?python[@-]?)?(3\.\d+t?)|([<>=!~].*?)\s*$)", python_version
    )
    return line[1] or line[2] if line else None


def _find_group_pythons(
    tool: Mapping[str, Any], groups: Collection[str]
) -> Iterator[str]:
    """Yield requires-python of uv's default groups and of requested ones."""
    uv = tool.get("uv", {})
    defaults = uv.get("default-groups", ["dev"])
    for name, group in uv.get("dependency-groups", {}).items():
        if defaults == "all" or name in defaults or normalize_name(name) in groups:
            yield group.get("requires-python", "")


def _read_poetry_python(dependencies: Mapping[str, Any]) -> str:
    """Return Poetry's ``python`` dependency as a specifier, or ""."""
    python = dependencies.get("python")
    if not isinstance(python, str):
        return ""
    from gpuinstall.base.poetry import convert_poetry_specifier

    try:
        return convert_poetry_specifier(python)
    except ValueError as error:
        raise _malformed(f"[tool.poetry.dependencies] python: {error}") from None


def _read_poetry_backend(dependencies: Mapping[str, Any]) -> str | None:
    """Return the backend in Poetry's torch version (``^2.3.1+cu121``)."""
    torch = dependencies.get("torch")
    version = torch.get("version") if isinstance(torch, dict) else torch
    if not isinstance(version, str) or "+" not in version:
        return None
    from gpuinstall.base.poetry import find_poetry_label

    return find_poetry_label(version)


def _malformed(
    fault: str, hint: tuple[Hint, ...] = (), file: str = "pyproject.toml"
) -> UsageError:
    return UsageError("config-malformed", f"{file}: {fault}", hint=hint)
