"""What a project says: ``[tool.gpuinstall]``, ``.python-version`` and ``requires-python``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.errors import UsageError
from gpuinstall.files import parse_toml, read_document

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LISTS = ("requirements", "targets", "backends")
_STRINGS = ("python", "torch-index")
_FLAGS = ("only-binary",)


class Config(NamedTuple):
    """A project's settings; ``python`` is an ``X.Y`` or a specifier, ``backends`` the allowed ones (None: all)."""

    requirements: tuple[str, ...] | None = None
    python: str | None = None
    targets: tuple[str, ...] | None = None
    backends: tuple[str, ...] | None = None
    torch_index: str | None = None
    only_binary: bool = False


def read_config(folder: Path) -> Config:
    """Read the settings of the project in ``folder``; raise UsageError where they are malformed."""
    project, pinned = folder / "pyproject.toml", folder / ".python-version"
    try:
        pyproject = parse_toml(read_document(project, folder)) if os.path.lexists(project) else {}
        version = read_document(pinned, folder) if os.path.lexists(pinned) else ""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise _malformed(f"cannot be read: {reason}") from None
    return parse_config(pyproject, version)


def parse_config(pyproject: Mapping[str, Any], python_version: str = "") -> Config:
    """Read the settings out of a parsed pyproject.toml and the text of ``.python-version``."""
    table = _table(_table(pyproject, "tool"), "gpuinstall")
    for key in table:
        if key not in {*_LISTS, *_STRINGS, *_FLAGS}:
            keys = ", ".join((*_LISTS, *_STRINGS, *_FLAGS))
            raise _malformed(f"[tool.gpuinstall] has no key {key!r}", f"it has {keys}")
    lists = {key: _strings(table, key) for key in _LISTS}
    strings = {key: _string(table, key) for key in _STRINGS}
    required = _string(_table(pyproject, "project"), "requires-python", "[project]")
    listed = re.search(r"(?m)^\s*(?:cpython[@-]?)?(3\.\d+t?)", python_version)
    return Config(
        requirements=lists["requirements"],
        python=strings["python"] or (listed[1] if listed else None) or required,
        targets=lists["targets"],
        backends=lists["backends"],
        torch_index=strings["torch-index"],
        only_binary=_flag(table, "only-binary"),
    )


def _table(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = parent.get(key, {})
    if not isinstance(table, dict):
        raise _malformed(f"{key} is {table!r}", "it is a table")
    return table


def _strings(table: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    value = table.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _malformed(f"[tool.gpuinstall] {key} is {value!r}", "it is a list of strings")
    return tuple(value)


def _string(table: Mapping[str, Any], key: str, section: str = "[tool.gpuinstall]") -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise _malformed(f"{section} {key} is {value!r}", "it is a string")
    return value


def _flag(table: Mapping[str, Any], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise _malformed(f"[tool.gpuinstall] {key} is {value!r}", "it is true or false")
    return value


def _malformed(fault: str, hint: str | None = None) -> UsageError:
    return UsageError("config-malformed", f"pyproject.toml: {fault}", hint=hint)
