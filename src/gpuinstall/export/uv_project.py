"""Generate dependency groups and indexes for a uv project.

uv does not select a torch build for the GPU. The user selects a dependency group:
``uv sync --group torch-cu126``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from gpuinstall.base.text import sanitize
from gpuinstall.base.versions import CPU
from gpuinstall.catalog import load_catalog
from gpuinstall.export.pins import (
    find_common_python,
    format_package_requirement,
    read_lock_backend,
)
from gpuinstall.lock.file.lock import Lock, select_versions


def format_uv_tables(
    locks: Sequence[Lock],
    torch_index: str,
) -> str:
    """Return TOML tables to add to a ``pyproject.toml``.

    Args:
        locks: The lock files. Those with the same backend form one dependency group. uv
            installs the first GPU build by default, if any.
        torch_index: The base URL of the torch indexes.

    Raises:
        UsageError: A lock file has an unknown backend, or Python versions differ.
    """
    python = find_common_python(locks)
    by_backend: dict[str, list[Lock]] = defaultdict(list)
    for lock in locks:
        by_backend[read_lock_backend(lock).tag].append(lock)
    backends = sorted(by_backend)
    default = next((tag for tag in by_backend if tag != CPU.tag), CPU.tag)
    family = load_catalog().family
    groups = pythons = indexes = conflicts = tables = ""
    sources: dict[str, dict[str, None]] = defaultdict(dict)
    for tag in backends:
        requirements = map(json.dumps, _format_requirements(by_backend[tag]))
        groups += f"torch-{tag} = [\n{_format_items(requirements)}]\n"
        pythons += f'torch-{tag} = {{ requires-python = "=={python}.*" }}\n'
        source = f'{{ index = "gpuinstall-{tag}", group = "torch-{tag}" }}'
        for lock in by_backend[tag]:
            for package in select_versions(lock, family):
                sources[package][source] = None
        url = json.dumps(f"{torch_index}/{tag}")
        indexes += f'\n[[tool.uv.index]]\nname = "gpuinstall-{tag}"\nurl = {url}\nexplicit = true\n'
    others = [tag for tag in backends if tag != default]
    head = ""
    if others:
        choices = ", ".join(f'{{ group = "torch-{tag}" }}' for tag in backends)
        # Declare conflicts, because uv would otherwise resolve all groups together.
        conflicts = f"conflicts = [[{choices}]]\n"
        head = f"# Another build: uv sync --no-group torch-{default} --group torch-{others[0]}\n"
    for package, entries in sorted(sources.items()):
        tables += f"{package} = [\n{_format_items(entries)}]\n"
    names = sanitize(", ".join(lock.name for lock in locks))
    return (
        f"# For pyproject.toml, from {names}: uv sync\n"
        f"{head}\n[dependency-groups]\n{groups}"
        f'\n[tool.uv]\ndefault-groups = ["torch-{default}"]  # add "dev" if the project has it\n{conflicts}'
        f"\n[tool.uv.dependency-groups]\n{pythons}"
        f"\n[tool.uv.sources]\n{tables}{indexes}"
    )


def _format_items(items: Iterable[str]) -> str:
    return "".join(f"    {item},\n" for item in items)


def _format_requirements(locks: Sequence[Lock]) -> Iterator[str]:
    """Yield the requirements for a dependency group.

    Requested packages are required on all systems. Other packages are required only on
    systems whose lock file contains them.
    """
    holders: dict[tuple[str, str], list[Lock]] = defaultdict(list)
    inputs = {"torch"}
    for lock in locks:
        inputs |= lock.requested
        for package, requirement in _format_locked_requirements(lock):
            holders[package, requirement].append(lock)
    for (package, requirement), own_locks in holders.items():
        markers = [
            str(marker).replace('"', "'")
            for lock in own_locks
            for marker in lock.pylock.environments or ()
        ]
        is_input_of_all = package in inputs and len(own_locks) == len(locks)
        if markers and not is_input_of_all:
            yield f"{requirement} ; {' or '.join(markers)}"
        else:
            yield requirement


def _format_locked_requirements(lock: Lock) -> Iterator[tuple[str, str]]:
    """Yield the names and requirements of packages that depend on the backend.

    The requirement for a torch extension has a URL, because no index has a separate
    version of the extension for each torch.
    """
    family = load_catalog().family
    for package, version in select_versions(lock, family).items():
        yield package, f"{package}=={version.partition('+')[0]}"
    for extension in lock.pylock.packages:
        if extension.name in family or not extension.wheels:
            continue
        if extension.version and extension.version.local:
            yield (
                extension.name,
                format_package_requirement(extension, extension.wheels, uses_url=True),
            )
