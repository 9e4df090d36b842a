"""What a project says: ``[tool.gpuinstall]``, ``.python-version`` and ``requires-python``."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import parse_toml, read_document
from gpuinstall.base.poetry import poetry_specifiers
from gpuinstall.base.request import FOLDERS_OWN, Request, Sourcing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_KINDS = {
    "requirements": list,
    "targets": list,
    "backends": list,
    "extension-sources": list,
    "python": str,
    "torch-index": str,
    "only-binary": bool,
    "per-target": bool,
}
_IN_WORDS = {
    list: "a list of strings",
    str: "a string",
    bool: "true or false",
}


def read_config(folder: Path) -> Request:
    """Return what the settings of the project in ``folder`` request.

    Raises:
        UsageError: They are malformed.
    """
    project = folder / "pyproject.toml"
    pinned = folder / ".python-version"
    pyproject: Mapping[str, Any] = {}
    version = ""
    try:
        if os.path.lexists(project):
            pyproject = parse_toml(read_document(project, folder))
        if os.path.lexists(pinned):
            version = read_document(pinned, folder)
    except OSError as error:
        raise _malformed(f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        reason = str(error).splitlines()[0]
        raise _malformed(f"cannot be read: {reason}") from None
    return parse_config(pyproject, version)


def parse_config(pyproject: Mapping[str, Any], python_version: str = "") -> Request:
    """Return what a parsed pyproject.toml and the text of ``.python-version`` request."""
    table = _table(_table(pyproject, "tool"), "gpuinstall")
    for key in table:
        if key not in _KINDS:
            raise _malformed(f"[tool.gpuinstall] has no key {key!r}", f"it has {', '.join(_KINDS)}")
    values = {}
    for key, kind in _KINDS.items():
        values[key] = _value(table, key, kind)
    project = _table(pyproject, "project")
    required = _value(project, "requires-python", str, "[project]") or _python_of_poetry(pyproject)
    return replace(
        FOLDERS_OWN,
        requirements=values["requirements"] or (),
        python=values["python"] or _first_python(python_version) or required,
        allowed_backends=values["backends"],
        targets=values["targets"] or (),
        newest_per_target=bool(values["per-target"]),
        sourcing=Sourcing(
            torch_index=values["torch-index"],
            extension_sources=values["extension-sources"] or (),
            only_binary=bool(values["only-binary"]),
        ),
    )


def _first_python(python_version: str) -> str | None:
    """Return the ``X.Y`` in the first line of ``.python-version`` that names a CPython."""
    line = re.search(r"(?m)^\s*(?:cpython[@-]?)?(3\.\d+t?)", python_version)
    return line[1] if line else None


def _python_of_poetry(pyproject: Mapping[str, Any]) -> str | None:
    """Return the Python that Poetry's own table requires, as a specifier."""
    poetry = _table(_table(pyproject, "tool"), "poetry")
    python = _table(poetry, "dependencies").get("python")
    # Several Pythons with a bar between them are no specifier.
    if not isinstance(python, str) or "|" in python:
        return None
    return ",".join(poetry_specifiers(python)) or None


def _table(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = parent.get(key, {})
    if not isinstance(table, dict):
        raise _malformed(f"{key} is {table!r}", "it is a table")
    return table


def _value(
    table: Mapping[str, Any],
    key: str,
    kind: type,
    section: str = "[tool.gpuinstall]",
) -> Any:
    value = table.get(key)
    if value is None:
        return None
    is_sound = isinstance(value, kind)
    if kind is list and is_sound:
        is_sound = all(isinstance(item, str) for item in value)
    if not is_sound:
        raise _malformed(f"{section} {key} is {value!r}", f"it is {_IN_WORDS[kind]}")
    return tuple(value) if kind is list else value


def _malformed(fault: str, hint: str | None = None) -> UsageError:
    return UsageError("config-malformed", f"pyproject.toml: {fault}", hint=hint)
