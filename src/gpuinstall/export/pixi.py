"""A lock as ``pixi.toml``: Python by conda-forge, everything locked from its index, the family by its addresses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from gpuinstall.export.pins import name_for_others, pins, systems_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuinstall.lock.lock import Lock

_PLATFORMS = {
    ("linux", "x86_64"): "linux-64",
    ("linux", "aarch64"): "linux-aarch64",
    ("windows", "x86_64"): "win-64",
    ("windows", "arm64"): "win-arm64",
    ("macos", "x86_64"): "osx-64",
    ("macos", "arm64"): "osx-arm64",
}


def pixi(lock: Lock, family: Collection[str]) -> str:
    """Write ``pixi.toml``; raise UsageError where a package has no address that others can use.

    It has no place for hashes: pixi takes them from the files, and keeps them in its own lock.
    """
    systems = systems_of(lock)
    requirements = [Requirement(pin.requirement) for pin in pins(lock, family)]
    needed = [
        each
        for each in requirements
        if each.marker is None or any(each.marker.evaluate(dict(values)) for values in systems.values())
    ]
    lines = [
        f"# From {lock.name}: pixi install",
        "[workspace]",
        f"name = {json.dumps(name_for_others(lock))}",
        'channels = ["conda-forge"]',
        f"platforms = {json.dumps([_PLATFORMS[system] for system in systems])}",
        "",
        "[dependencies]",
        f'python = "{lock.python}.*"',
        "",
        "[pypi-dependencies]",
        *(f"{each.name} = {_value(each)}" for each in needed),
    ]
    return "\n".join(lines) + "\n"


def _value(requirement: Requirement) -> str:
    """What a requirement says of its package: its address, or its version."""
    if requirement.url:
        return f"{{ url = {json.dumps(requirement.url)} }}"
    return json.dumps(str(requirement.specifier))
