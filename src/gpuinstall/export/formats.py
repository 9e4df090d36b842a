"""The formats that locks are written in: each a small writer, and a row of a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import UsageError
from gpuinstall.base.text import visible
from gpuinstall.catalog import load_catalog
from gpuinstall.export.needs import machine_needs
from gpuinstall.export.pins import (
    PLATFORM_NAMES,
    name_for_others,
    pins,
    systems_of,
    without_folders,
)
from gpuinstall.export.pixi_workspace import pixi_dependencies, pixi_workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuinstall.lock.lock import Lock


class Format(NamedTuple):
    """A format that locks are written in."""

    name: str
    """As on the command line."""
    help: str
    write: Callable[[Sequence[Lock]], str]
    """Raises UsageError if a lock does not say enough, or others cannot use a package's address."""
    takes_several: bool = False


def requirements(locks: Sequence[Lock]) -> str:
    """Return a requirements file."""
    (lock,) = locks
    pythons = str(lock.python or lock.pylock.requires_python or "of any version")
    head = f"# From {visible(lock.name)}, for Python {visible(pythons)}.\n"
    lines = [" \\\n    ".join(pin.words) + "\n" for pin in pins(lock)]
    return "".join([head, without_folders(lock), *lines])


def constraints(locks: Sequence[Lock]) -> str:
    """Return the version of each package, of torch with its build: ``-c`` takes it."""
    (lock,) = locks
    commands = "pip install -c constraints.txt, uv pip install -c constraints.txt"
    lines = [f"# From {visible(lock.name)}: {commands}\n"]
    lines += [f"{name}=={version}\n" for name, version in sorted(lock.versions.items())]
    return "".join(lines)


def conda(locks: Sequence[Lock]) -> str:
    """Return ``environment.yml``.

    With the virtual packages that a machine has to have, conda refuses one whose driver or glibc is too old.
    """
    (lock,) = locks
    virtual_packages = _virtual_packages(lock)
    command = "conda env create -f environment.yml"
    python = f"python={lock.python}"
    if not lock.python:
        python = json.dumps(f"python{lock.pylock.requires_python or ''}")
    lines = [f"# From {visible(lock.name)}: {command}", *without_folders(lock).splitlines()]
    if "__cuda" in virtual_packages:
        cuda = virtual_packages["__cuda"]
        lines.append(f"# On a machine without a GPU: CONDA_OVERRIDE_CUDA={cuda} {command}")
    lines += [
        f"name: {name_for_others(lock)}",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
        "dependencies:",
        *(f"  - {name} >={version}" for name, version in virtual_packages.items()),
        f"  - {python}",
        "  - pip",
        "  - pip:",
        *(f"      - {json.dumps(' '.join(pin.words))}" for pin in pins(lock)),
    ]
    return "\n".join(lines) + "\n"


def _virtual_packages(lock: Lock) -> dict[str, str]:
    """Return conda's names of what a lock needs of a machine, each with the least version."""
    try:
        (needs,) = machine_needs([lock], load_catalog())
    except (UsageError, ValueError):
        # It does not say what it is for, or is for several systems.
        return {}
    packages = {}
    cudas = [gpus.cuda for gpus in needs.gpus if gpus.cuda]
    # Of libraries that serve older drivers too, conda knows nothing.
    if cudas and not lock.record.cuda_compat:
        packages["__cuda"] = str(min(cudas))
    if needs.glibc:
        packages["__glibc"] = needs.glibc
    return packages


def pixi(locks: Sequence[Lock]) -> str:
    """Return ``pixi.toml``, of several locks with a platform for each.

    It has no place for hashes: pixi takes them from the files, and keeps them in its own lock.
    """
    if len(locks) > 1:
        return pixi_workspace(locks, load_catalog())
    (lock,) = locks
    systems = systems_of(lock)
    platforms = [PLATFORM_NAMES[system] for system in systems]
    lines = [
        f"# From {visible(lock.name)}: pixi install",
        *without_folders(lock).splitlines(),
        "[workspace]",
        f"name = {json.dumps(name_for_others(lock))}",
        'channels = ["conda-forge"]',
        f"platforms = {json.dumps(platforms)}",
        "",
        "[dependencies]",
        f'python = "{lock.python}.*"',
        "",
        "[pypi-dependencies]",
        *pixi_dependencies(lock, systems.values()),
    ]
    return "\n".join(lines) + "\n"


FORMATS = (
    Format("constraints", "Write the versions alone, for pip -c, uv and Poetry.", constraints),
    Format("requirements", "Write a requirements file with hashes, for pip and uv.", requirements),
    Format("conda", "Write conda's environment.yml, its pip section with hashes.", conda),
    Format("pixi", "Write pixi's pixi.toml, the versions as locked.", pixi, takes_several=True),
)
