"""``gpuinstall shellenv``: the decision for plain uv and pip, as lines that a shell evaluates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlsplit

import click

from gpuinstall.base.backend import known_backend
from gpuinstall.base.location import Location
from gpuinstall.base.shell import Shell, assignments
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.environments.guard import CONSTRAINTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.sources import Sources
    from gpuinstall.sources.sources import FolderSetting

_UV_TAGS = """
cpu cu80 cu90 cu91 cu92 cu100 cu101 cu102 cu110 cu111 cu112 cu113 cu114 cu115 cu116 cu117
cu118 cu120 cu121 cu122 cu123 cu124 cu125 cu126 cu128 cu129 cu130 cu132
"""
UV_TAGS = frozenset(_UV_TAGS.split())
"""The tags of CUDA and CPU builds that uv 0.13.8 takes for ``--torch-backend``."""
_VARIANT_CUDA = "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION"
_OWN_VARIABLES = ("UV_TORCH_BACKEND", "UV_NO_SYNC", "UV_PROJECT_ENVIRONMENT", _VARIANT_CUDA)
"""What a shell that was set up for a project would go on with in the next one."""


@click.command(
    "shellenv", help='Print settings for plain uv and pip: eval "$(gpuinstall shellenv)".'
)
@click.option(
    "--shell",
    type=click.Choice(get_args(Shell)),
    default="sh",
    help="The shell to write for (sh).",
)
@framed("shellenv", "venv", "torch_index")
def command(terminal: Terminal, options: CommandOptions, *, shell: Shell) -> Outcome:
    """Print the variables."""
    from gpuinstall.environments.environment import read_marker
    from gpuinstall.lock.request import LockRequest

    with options.open(terminal) as project:
        sources, folder = project.sources, project.paths.venv
        marker = read_marker(folder)
        if marker is None:
            lock_request = LockRequest(project.machine, project.request, project.catalog)
            backend = lock_request.choice.build.backend.tag
        else:
            backend = marker.backend
    guard = folder / CONSTRAINTS
    in_project = marker is not None and Path("pyproject.toml").is_file()
    has_guard = marker is not None and guard.is_file() and not in_project
    told, omissions = variables(backend, sources, guard if has_guard else None)
    values = {**_ended(os.environ), **told}
    if in_project:
        # uv run would sync the project's own lock, with another torch. Its lock is made for every machine: no
        # constraint of this environment can hold there.
        values["UV_NO_SYNC"] = "1"
        values["UV_PROJECT_ENVIRONMENT"] = str(folder)
    constraints = os.environ.get("UV_CONSTRAINT", "").split()
    if constraints or has_guard:
        # Those that the user has set go on counting.
        own = [told["UV_CONSTRAINT"]] if has_guard else []
        others = [name for name in constraints if not _is_own_guard(name)]
        values["UV_CONSTRAINT"] = " ".join([*others, *own]) or None
    for omission in omissions:
        terminal.warn(omission)
    text = assignments(values, shell)
    data = {"shell": shell, "backend": backend, "variables": values, "text": text}
    return Outcome(data, lambda screen: screen.block(text))


def _ended(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return what this shell was set up with for another project, to be ended: none of it is the user's own."""
    from gpuinstall.environments.environment import read_marker

    project = environ.get("UV_PROJECT_ENVIRONMENT")
    is_set_up = any(map(_is_own_guard, environ.get("UV_CONSTRAINT", "").split())) or (
        project is not None and read_marker(Path(project)) is not None
    )
    if not is_set_up:
        return {}
    return dict.fromkeys(name for name in _OWN_VARIABLES if name in environ)


def _is_own_guard(name: str) -> bool:
    """Whether this names the guard of an environment: only we write addresses of files there."""
    return name.startswith("file:") and name.endswith(f"/{CONSTRAINTS}")


def variables(
    backend: str, sources: Sources, constraints: Path | None
) -> tuple[dict[str, str], list[str]]:
    """Return the variables for plain uv, and why something that cannot be said to it safely is left out."""
    values: dict[str, str] = {}
    omissions = []
    if sources.is_torch_index_requested:
        command = f"uvx --index {sources.torch_index}/{backend}"
        omissions.append(
            f"UV_TORCH_BACKEND works with the official index only, and yours is another: {command}"
        )
    elif backend in UV_TAGS:
        values["UV_TORCH_BACKEND"] = backend
    else:
        omissions.append(f"uv does not support {backend}, so UV_TORCH_BACKEND is not printed")
    build = known_backend(backend)
    # Programs that choose among variants of wheels are to take the build's CUDA for the driver's (a draft).
    if build and build.version and build.kind == "cuda":
        values[_VARIANT_CUDA] = build.version
    addresses = {"UV_DEFAULT_INDEX": sources.default_index, "SSL_CERT_FILE": sources.certificates}
    for name, value in addresses.items():
        setting = _setting_of_folder(value, sources) if value else None
        if setting:
            origin = f"{setting.value} comes from {setting.file}, not from you"
            omissions.append(f"{name} is not printed: {origin}")
        elif value and urlsplit(value).netloc in sources.logins:
            omissions.append(f"{value} requires a password, so {name} is not printed")
        elif value:
            values[name] = value
    if constraints:
        values["UV_CONSTRAINT"] = constraints.as_uri()
    return values, omissions


def _setting_of_folder(value: str, sources: Sources) -> FolderSetting | None:
    """Return the setting of the folder that chose just this: it is not for all that the shell does."""
    address = Location.parse(value)
    for setting in sources.chosen:
        if setting.value and Location.parse(setting.value) == address:
            return setting
    return None
