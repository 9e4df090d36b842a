"""Tables for a uv project's pyproject.toml: a dependency group for each locked backend, with its index.

uv's lock cannot choose by GPU, so the user does: ``uv sync --group torch-cu126``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.text import visible
from gpuinstall.base.versions import CPU
from gpuinstall.catalog import load_catalog
from gpuinstall.export.pins import backend_of, one_python, requirement_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuinstall.lock.lock import Lock


def uv_tables(locks: Sequence[Lock], torch_index: str) -> str:
    """Return the tables to add to a pyproject.toml; raise UsageError if a lock does not say its backend.

    Args:
        locks: The locks; those of one backend for several systems become one group.
        torch_index: The base of the groups' indexes.
    """
    python = one_python(locks)
    by_backend: dict[str, list[Lock]] = defaultdict(list)
    for lock in locks:
        by_backend[backend_of(lock).tag].append(lock)
    backends = sorted(by_backend)
    # What `uv run` takes unasked: a build for a GPU, if there is one.
    default = next((tag for tag in backends if tag != CPU.tag), CPU.tag)
    groups = ["", "[dependency-groups]"]
    pythons = ["", "[tool.uv.dependency-groups]"]
    sources: dict[str, list[str]] = defaultdict(list)
    indexes = []
    for tag in backends:
        requirements = [json.dumps(text) for text in _requirements(by_backend[tag])]
        groups += [f"torch-{tag} = [", *_items(requirements), "]"]
        pythons.append(f'torch-{tag} = {{ requires-python = "=={python}.*" }}')
        for package in _family_of(by_backend[tag]):
            sources[package].append(
                f'{{ index = "gpuinstall-{tag}", group = "torch-{tag}" }}'
            )
        url = json.dumps(f"{torch_index}/{tag}")
        indexes += [
            "",
            "[[tool.uv.index]]",
            f'name = "gpuinstall-{tag}"',
            f"url = {url}",
        ]
        indexes.append("explicit = true")
    settings = [
        "",
        "[tool.uv]",
        f'default-groups = ["torch-{default}"]  # and "dev", if it is there',
    ]
    if len(backends) > 1:
        choices = ", ".join(f'{{ group = "torch-{tag}" }}' for tag in backends)
        settings.append(f"conflicts = [[{choices}]]")
    tables = ["", "[tool.uv.sources]"]
    for package, entries in sorted(sources.items()):
        tables += [f"{package} = [", *_items(entries), "]"]
    head = [
        f"# For pyproject.toml, from {visible(', '.join(lock.name for lock in locks))}: uv sync",
        f"# Another build: uv sync --no-default-groups --group torch-{backends[0]}",
    ]
    return "\n".join([*head, *groups, *settings, *pythons, *tables, *indexes]) + "\n"


def _items(items: Iterable[str]) -> list[str]:
    return [f"    {item}," for item in items]


def _family_of(locks: Iterable[Lock]) -> set[str]:
    """Return the packages of some locks that come from torch's index."""
    return {name for lock in locks for name in lock.versions_of(load_catalog().family)}


def _requirements(locks: Sequence[Lock]) -> Iterator[str]:
    """Yield the requirements of a group.

    What was requested applies everywhere, the rest only if a lock has it.
    """
    holders: dict[tuple[str, str], list[Lock]] = defaultdict(list)
    for lock in locks:
        for package, requirement in _locked(lock):
            holders[package, requirement].append(lock)
    inputs = {"torch"}.union(*(requirement_names(lock.record.inputs) for lock in locks))
    for (package, requirement), own_locks in holders.items():
        markers = " or ".join(_markers(own_locks))
        is_input_of_all = package in inputs and len(own_locks) == len(locks)
        if markers and not is_input_of_all:
            yield f"{requirement} ; {markers}"
        else:
            yield requirement


def _locked(lock: Lock) -> Iterator[tuple[str, str]]:
    """Yield the packages that decide the build, each with its requirement.

    An extension's file for one torch has a version that no index of uv's has, and is named by its address.
    """
    family = load_catalog().family
    for package, version in lock.versions_of(family).items():
        yield package, f"{package}=={version.partition('+')[0]}"
    for extension in lock.pylock.packages:
        if extension.name in family or not extension.wheels:
            continue
        if extension.version and extension.version.local:
            yield (
                extension.name,
                requirement_of(extension, extension.wheels, by_address=True),
            )


def _markers(locks: Iterable[Lock]) -> Iterator[str]:
    for lock in locks:
        for marker in lock.pylock.environments or ():
            yield str(marker).replace('"', "'")
