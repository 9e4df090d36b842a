"""``gpuinstall shellenv``: the decision for plain uv and pip, as lines that a shell evaluates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, get_args
from urllib.parse import urlsplit

import click

from gpuinstall.backend import known_backend
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.location import Location
from gpuinstall.project import Settings, open_project
from gpuinstall.request import Request
from gpuinstall.shell import Shell, assignments, joined, quoted
from gpuinstall.sourcing import Sourcing

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.sources import Sources
    from gpuinstall.sources.sources import FolderSetting

_UV_TOOLKITS = (
    80,
    90,
    91,
    92,
    *range(100, 103),
    *range(110, 119),
    *range(120, 127),
    128,
    129,
    130,
    132,
)
UV_TAGS = frozenset({"cpu", *(f"cu{number}" for number in _UV_TOOLKITS)})
"""The tags of CUDA and CPU builds that uv 0.13.8 takes for ``--torch-backend``."""
_VARIANT_CUDA = "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION"
_OWN_VARIABLES = ("UV_TORCH_BACKEND", "UV_NO_SYNC", "UV_PROJECT_ENVIRONMENT", _VARIANT_CUDA)
"""What a shell that was set up for a project would go on with in the next one."""


@click.command(
    "shellenv", help='Print settings for plain uv and pip: eval "$(gpuinstall shellenv)".'
)
@options.venv
@click.option(
    "--shell", type=click.Choice(get_args(Shell)), default="sh", help="The shell to write for (sh)."
)
@options.torch_index
@framed("shellenv")
def command(terminal: Terminal, venv: str, shell: Shell, torch_index: str | None) -> Outcome:
    """Print the variables."""
    from gpuinstall.environments.environment import read_marker
    from gpuinstall.environments.guard import CONSTRAINTS
    from gpuinstall.lock.request import LockRequest

    with open_project(
        Path.cwd(), Settings(Request((), sourcing=Sourcing(torch_index)), venv=Path(venv)), terminal
    ) as project:
        sources, folder = project.sources, project.paths.venv
        marker, constraints = read_marker(folder), folder / CONSTRAINTS
        if marker is None:
            planned = LockRequest(project.machine, project.request, project.catalog)
        backend = marker.backend if marker else planned.choice.build.backend.tag
    is_guarded = marker is not None and constraints.is_file()
    values: dict[str, str | None] = {
        **variables(backend, sources, constraints if is_guarded else None)
    }
    if (
        marker and Path("pyproject.toml").is_file()
    ):  # uv run would sync the project's own lock, with another torch
        values |= {"UV_NO_SYNC": "1", "UV_PROJECT_ENVIRONMENT": str(folder)}
    before = os.environ.get("UV_CONSTRAINT", "").split()
    theirs = [name for name in before if not _is_own_guard(name)]
    own = values.get("UV_CONSTRAINT")
    is_set_up = theirs != before
    if is_set_up:
        ended = (name for name in _OWN_VARIABLES if name in os.environ)
        values = {**dict.fromkeys(ended), **values}
    if is_set_up or own:  # those that the user has set go on counting
        values["UV_CONSTRAINT"] = " ".join(dict.fromkeys((*theirs, *filter(None, [own])))) or None
    for omission in omissions(backend, sources):
        terminal.warn(omission)
    text = assignments(values, shell)
    if is_guarded:
        text += functions(folder, shell)
    elif is_set_up:
        text += _NO_FUNCTIONS.get(shell, _NO_FUNCTIONS["sh"])
    data = {"shell": shell, "backend": backend, "variables": values, "text": text}
    return Outcome(data, lambda screen: screen.block(text.removesuffix("\n")))


def variables(backend: str, sources: Sources, constraints: Path | None) -> dict[str, str]:
    """What plain uv is to know; what cannot be said to it safely is left out."""
    values: dict[str, str] = {}
    if backend in UV_TAGS and not sources.named:
        values["UV_TORCH_BACKEND"] = backend
    build = known_backend(backend)
    # What programs that choose among variants of wheels are to take for the driver's toolkit: the build's (a draft).
    if build and build.version and build.kind == "cuda":
        values[_VARIANT_CUDA] = build.version
    if sources.default_index and not (_closed(sources) or _chooser(sources.default_index, sources)):
        values["UV_DEFAULT_INDEX"] = sources.default_index
    if sources.certificates and not _chooser(sources.certificates, sources):
        values["SSL_CERT_FILE"] = sources.certificates
    if constraints:
        values["UV_CONSTRAINT"] = constraints.as_uri()
    return values


# An alias of the same name would be a syntax error at the function, and the variables would stay without it.
_UV_IN_SH = """\
unalias uv uvx pipx 2>/dev/null || :
uv() {{
    case "${{1-}}" in
        pip) env -u UV_TORCH_BACKEND uv "$@" ;;
        add|remove) env -u UV_CONSTRAINT uv "$@" && (cd {folder} && {install}) ;;
        sync) shift; env -u UV_CONSTRAINT uv lock && (cd {folder} && {install} "$@") ;;
        *) env -u UV_CONSTRAINT uv "$@" ;;
    esac
}}
uvx() {{ env -u UV_CONSTRAINT uvx "$@"; }}
pipx() {{ env -u UV_CONSTRAINT pipx "$@"; }}
"""
_UV_IN_FISH = """\
function uv
    switch "$argv[1]"
        case pip
            env -u UV_TORCH_BACKEND uv $argv
        case add remove
            env -u UV_CONSTRAINT uv $argv
            and sh -c 'cd "$1" && shift && exec "$@"' sh {folder} {install}
        case sync
            env -u UV_CONSTRAINT uv lock
            and sh -c 'cd "$1" && shift && exec "$@"' sh {folder} {install} $argv[2..]
        case '*'
            env -u UV_CONSTRAINT uv $argv
    end
end
function uvx
    env -u UV_CONSTRAINT uvx $argv
end
function pipx
    env -u UV_CONSTRAINT pipx $argv
end
"""
_NO_FUNCTIONS = {
    "sh": "unset -f uv uvx pipx 2>/dev/null || :\n",
    "fish": "functions -e uv uvx pipx\n",
    "powershell": "",
}


def functions(venv: Path, shell: Shell) -> str:
    """Return the functions by which uv keeps the environment's torch; none for PowerShell, which gets variables alone.

    No variable of uv's is for one of its commands alone, and each needs another: ``uv pip`` the constraints, by which
    a project's lock, made for every machine, cannot be resolved; a tool's own environment, which pipx too has uv make,
    the backend; a project's environment our ``install`` of what uv has locked, since uv would replace torch.
    """
    form = {"powershell": "", "fish": _UV_IN_FISH}.get(shell, _UV_IN_SH)
    words = ["gpuinstall", "install", *(["--venv", str(venv)] if venv.name != ".venv" else [])]
    return form.format(folder=quoted(venv.parent, shell), install=joined(words, shell))


def omissions(backend: str, sources: Sources) -> tuple[str, ...]:
    """Why something was left out."""
    reasons = []
    if sources.named:
        command = f"uvx --index {sources.torch_index}/{backend}"
        reasons.append(
            f"UV_TORCH_BACKEND works with the official index only, and yours is another: {command}"
        )
    elif backend not in UV_TAGS:
        reasons.append(f"uv does not support {backend}, so UV_TORCH_BACKEND is not printed")
    if _closed(sources):
        reasons.append(
            f"{sources.default_index} requires a password, so UV_DEFAULT_INDEX is not printed"
        )
    for name, value in (
        ("UV_DEFAULT_INDEX", sources.default_index),
        ("SSL_CERT_FILE", sources.certificates),
    ):
        if value and (setting := _chooser(value, sources)):
            reasons.append(
                f"{name} is not printed: {setting.value} comes from {setting.file}, not from you"
            )
    return tuple(reasons)


def _is_own_guard(name: str) -> bool:
    """Whether this names the guard of an environment: the shell was set up for another project before."""
    from gpuinstall.environments.environment import read_marker
    from gpuinstall.environments.guard import CONSTRAINTS
    from gpuinstall.lock.fetch import local_path

    file = local_path(name)
    if file is None or file.name != CONSTRAINTS:
        return False
    # An environment may have been removed since. Only we write addresses of files, and uv would fail with this one.
    is_removed = name.startswith("file:") and not file.parent.exists()
    return is_removed or read_marker(file.parent) is not None


def _chooser(value: str, sources: Sources) -> FolderSetting | None:
    """The setting of the folder that chose just this: it is for the folder, and not for all that the shell does."""
    address = Location.parse(value)
    return next(
        (row for row in sources.chosen if row.value and Location.parse(row.value) == address), None
    )


def _closed(sources: Sources) -> bool:
    return urlsplit(sources.default_index or "").netloc in sources.logins
