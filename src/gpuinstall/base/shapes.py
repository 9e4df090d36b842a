"""Validate the keys of the TOML documents that gpuinstall reads."""

from __future__ import annotations

import reprlib
from functools import cache
from typing import Any, TypeAlias

from gpuinstall.base.files import parse_toml

Shape: TypeAlias = Any
"""Shape of a value: a type, a list, alternatives in a tuple, or a table."""

_TEXTS: Shape = [str]
_TABLE: Shape = {"*": object}
_Fault: TypeAlias = tuple[str, Any, Shape]
_PLACE: Shape = dict.fromkeys(
    ("git", "branch", "tag", "rev", "url", "path", "file", "subdirectory"), str
)
_SOURCE: Shape = _PLACE | {
    "index": str,
    "marker": str,
    "extra": str,
    "group": str,
    "editable": bool,
    "workspace": bool,
}
_INDEX = {"url!": str, "name": str, "format": str, "default": bool, "explicit": bool}
_UV_INDEXES: Shape = {
    "index-url": str,
    "extra-index-url": (str, _TEXTS),
    "find-links": (str, _TEXTS),
}
_SCOPED: Shape = {"package!": {"name!": str}, "dependencies": _TEXTS}
_PASSED: Shape = {
    "constraint-dependencies": _TEXTS,
    "override-dependencies": [(str, _SCOPED)],
    "exclude-dependencies": [(str, _SCOPED)],
    "build-constraint-dependencies": [(str, {"requirement!": str, "hashes": _TEXTS})],
    "extra-build-dependencies": {
        "*": [(str, {"requirement!": str, "match-runtime": bool})]
    },
    "dependency-metadata": [{"name!": str, "requires-dist": _TEXTS}],
    **dict.fromkeys(("exclude-newer", "resolution", "prerelease"), str),
    **dict.fromkeys(("fork-strategy", "index-strategy", "torch-backend"), str),
    **dict.fromkeys(("no-sources", "no-build", "no-build-isolation"), bool),
    **dict.fromkeys(("no-build-package", "no-binary-package"), _TEXTS),
    **dict.fromkeys(("no-build-isolation-package", "no-sources-package"), _TEXTS),
    "config-settings": _TABLE,
    "config-settings-package": {"*": _TABLE},
    "extra-build-variables": {"*": _TABLE},
    "prerelease-package": _TABLE,
    "exclude-newer-package": _TABLE,
}
UV: Shape = (
    _UV_INDEXES
    | _PASSED
    | {
        "index": [_INDEX],
        "pip": _UV_INDEXES
        | _PASSED
        | dict.fromkeys(("no-binary", "only-binary"), _TEXTS),
        **dict.fromkeys(("no-binary", "only-binary"), (bool, _TEXTS)),
        "sources": {"*": (_SOURCE, [_SOURCE])},
        "workspace": {"members": _TEXTS, "exclude": _TEXTS},
        "package": bool,
        "minimum-libc-version": {"glibc": str},
        "environments": (str, _TEXTS),
        "default-groups": (str, _TEXTS),
        "dependency-groups": {"*": {"requires-python": str}},
        "dev-dependencies": _TEXTS,
        "conflicts": [[{"extra": str, "group": str, "package": str}]],
        "cache-keys": [(str, {"file": str})],
    }
)
"""The shape of a ``uv.toml`` or ``[tool.uv]`` table."""

_ENTRY: Shape = _PLACE | {
    "version": str,
    "python": str,
    "platform": str,
    "markers": str,
    "optional": bool,
    "extras": _TEXTS,
    "source": str,
}
_ENTRIES = {"*": (str, _ENTRY, [(str, _ENTRY)])}
_POETRY = {
    "package-mode": bool,
    "dependencies": _ENTRIES,
    "dev-dependencies": _ENTRIES,
    "group": {
        "*": {"optional": bool, "dependencies": _ENTRIES, "include-groups": _TEXTS}
    },
    "extras": {"*": _TEXTS},
    "source": [{"name": str, "url": str}],
}
PYPROJECT = {
    "project": {
        "name": str,
        "version": str,
        "requires-python": str,
        "dynamic": _TEXTS,
        "dependencies": _TEXTS,
        "optional-dependencies": {"*": _TEXTS},
    },
    "build-system": {"requires": _TEXTS},
    "dependency-groups": {"*": [(str, {"include-group!": str})]},
    "tool": {
        "uv": UV,
        "poetry": _POETRY,
        **dict.fromkeys(("gpuinstall", "pdm", "rye", "pixi", "hatch"), _TABLE),
    },
}
_FILE = {"hash": str}
_LOCKED_SOURCE = "type", "url", "registry", "git", "reference", "resolved_reference"
LOCK = {
    "package": [
        {
            "name!": str,
            "version": str,
            "source": dict.fromkeys(_LOCKED_SOURCE, str),
            "files": [_FILE],
            "wheels": [_FILE],
            "sdist": _FILE,
            "resolution-markers": _TEXTS,
            "markers": (str, {"*": str}),
            "groups": _TEXTS,
        }
    ]
}
"""The shape of a ``uv.lock`` or ``poetry.lock``."""


CONFIG = {
    "trust-folder": bool,
    "trusted-sources": _TEXTS,
    "pass-build-variables": _TEXTS,
}
"""The shape of gpuinstall's user configuration file."""


class ShapeError(ValueError):
    """Error for a key in a TOML document with a value of a wrong type."""


@cache
def parse_pyproject(text: str) -> dict[str, Any]:
    """Parse a pyproject.toml, and check the keys that gpuinstall reads.

    Raises:
        ValueError: The file is malformed.
    """
    document = parse_toml(text)
    check_shape(document, PYPROJECT)
    return document


def check_shape(document: object, shape: Shape) -> None:
    """Raise ShapeError for the first key with a value of a wrong type.

    Args:
        document: The document.
        shape: The expected shape. ``*`` is any other key of a table, and ``!`` follows a
            required key.
    """
    fault = _find_fault(document, shape, "")
    if fault:
        key, value, expected = fault
        raise ShapeError(
            f"{key} = {reprlib.repr(value)} is not {_format_shape(expected)}"
        )


def _find_fault(value: Any, shape: Shape, key: str) -> _Fault | None:
    """Return the first key with a wrong value, the value, and its shape."""
    if isinstance(shape, tuple):
        faults = [_find_fault(value, one, key) for one in shape]
        # The alternative with the deepest fault is the most similar one.
        known = filter(None, faults)
        return max(known, key=lambda one: len(one[0])) if all(faults) else None
    kind: Any = shape if isinstance(shape, type) else type(shape)
    if not isinstance(value, kind):
        return key, value, shape
    if isinstance(shape, list):
        parts = [(f"{key}[{n}]", one, shape[0]) for n, one in enumerate(value)]
    elif isinstance(shape, dict):
        required = {name[:-1] for name in shape if name.endswith("!")}
        for name in required - value.keys():
            return f"{key}.{name}", None, str
        others = shape.get("*", object)
        shapes = {name.removesuffix("!"): one for name, one in shape.items()}
        parts = [
            (f"{key}.{name}".lstrip("."), one, shapes.get(name, others))
            for name, one in value.items()
        ]
    else:
        return None
    found = (_find_fault(one, inner, place) for place, one, inner in parts)
    return next(filter(None, found), None)


def _format_shape(shape: Shape) -> str:
    """Describe a shape for an error message."""
    if isinstance(shape, tuple):
        return " or ".join(map(_format_shape, shape))
    if isinstance(shape, list):
        return "a list"
    if isinstance(shape, dict):
        return "a table"
    return "a string" if shape is str else "true or false"
