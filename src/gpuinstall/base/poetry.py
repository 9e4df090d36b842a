"""Convert Poetry's version constraints to standard specifiers and markers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpuinstall.base.alternatives import join_alternatives

_LABEL = r"\+[\w.]+"
_OPERATOR = r"(===|[<>=!~]=|[<>^~=])?(.*)"


def convert_poetry_specifier(text: str) -> str:
    """Convert a Poetry constraint to a standard specifier.

    A label in a range (``^2.3.1+cu121``) is only a preference; see ``find_poetry_label``.

    Args:
        text: The constraint, such as ``^1.2``, ``~1.2``, ``>=1.2, <2``, ``^1 || ^2``, or
            ``*``.

    Raises:
        ValueError: The constraint is malformed, or no specifier is equivalent.
    """
    alternatives = split_poetry_alternatives(text)
    joined = join_alternatives(alternatives)
    if joined is None:
        raise ValueError(f"{text!r} cannot be written as one version specifier")
    return joined


def split_poetry_alternatives(text: str) -> list[str]:
    """Convert the ``||`` alternatives of a Poetry constraint to specifiers."""
    return [",".join(_convert_bounds(part)) for part in re.split(r"\|\|?", text)]


def find_poetry_label(text: str) -> str | None:
    """Return the local label (``cu121``) in a Poetry constraint, or None."""
    label = re.search(_LABEL, text)
    return label[0][1:] if label else None


def create_poetry_marker(entry: Mapping[str, Any]) -> str:
    """Convert a Poetry dependency's conditions to a standard marker.

    Raises:
        ValueError: A value is malformed.
    """
    conditions = (
        convert_poetry_python(entry.get("python", "")),
        convert_poetry_platform(entry.get("platform", "")),
        entry.get("markers", ""),
    )
    return " and ".join(f"({one})" for one in conditions if one)


def convert_poetry_platform(text: str) -> str:
    """Convert a Poetry platform such as ``!=win32`` to a marker."""
    platforms = []
    for part in re.split(r"\|\|?", text):
        names = []
        for name in part.replace(",", " ").split():
            operator = "!=" if name.startswith("!=") else "=="
            names.append(f"sys_platform {operator} '{name.lstrip('!=')}'")
        platforms.append(" and ".join(names))
    return " or ".join(platforms)


def convert_poetry_python(text: str) -> str:
    """Convert Poetry's ``python`` to a marker. Empty: all versions."""
    alternatives = []
    for specifier in split_poetry_alternatives(text):
        bounds = filter(None, specifier.split(","))
        alternatives.append(" and ".join(map(_python_marker, bounds)))
    return " or ".join(alternatives) if all(alternatives) else ""


def _python_marker(bound: str) -> str:
    # python_version lacks the patch release: 3.11.9 is 3.11, older than 3.11.2.
    name = "python_version"
    if bound.removesuffix(".*").count(".") > 1:
        name = "python_full_version"
    return re.sub("^([<>=!~]+)(.+)$", rf"{name} \1 '\2'", bound)


def _convert_bounds(text: str) -> list[str]:
    bounds: list[str] = []
    # A space separates two bounds, except after an operator.
    joined = re.sub(r"(?<=[<>=!~^])\s+", "", text)
    for part in joined.replace(",", " ").split():
        [(operator, version)] = re.findall(rf"\A{_OPERATOR}\Z", part)
        if version == "*":
            continue
        match operator:
            case "^" | "~":
                version = re.sub(_LABEL, "", version)
                bounds += [f">={version}", f"<{_find_upper_bound(operator, version)}"]
            case "" | "=":
                bounds.append(f"=={version}")
            case "==" | "!=" | "===":
                bounds.append(part)
            case _:
                bounds.append(re.sub(_LABEL, "", part))
    return bounds


def _find_upper_bound(operator: str, version: str) -> str:
    """Return the lowest release above a ``^version`` or ``~version`` range."""
    release, _, _ = version.partition("-")
    kept = []
    for digits in re.findall(r"\d+", release):
        kept.append(int(digits))
        # A caret allows changes after the first number that is not 0, a tilde after the second.
        if operator == "^":
            is_last = kept[-1] > 0
        else:
            is_last = len(kept) == 2
        if is_last:
            break
    if not kept:
        raise ValueError(f"{operator}{version} contains no version number")
    kept[-1] += 1
    return ".".join(map(str, kept))
