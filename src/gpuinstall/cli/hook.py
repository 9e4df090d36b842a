"""``gpuinstall hook``: let plain pip and uv take builds that run here, by a marked block in their configuration."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.environments.environment import fingerprint
from gpuinstall.errors import GpuInstallError, UsageError
from gpuinstall.files import open_regular, remove_path, write_atomically, write_in_place
from gpuinstall.marked_block import block_note, without_blocks
from gpuinstall.project import Project, Settings, open_project
from gpuinstall.request import Request
from gpuinstall.sources import OFFICIAL
from gpuinstall.sources.configuration import PIP_NAME, own_file, pip_links

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.export.hooks import Hook

TOOLS = ("pip", "uv")
BOUND = "gpuinstall-constraints.txt"
"""The file beside pip.conf that holds the bound: pip takes constraints from files alone."""


@click.command("hook", help="Make plain pip or uv install builds that run here, in other environments too.")
@click.argument("tool", type=click.Choice(TOOLS))
@click.option("--user/--project", "user", default=True, help="For this user (the default), or for this folder.")
@click.option("--remove", is_flag=True, help="Remove exactly what an earlier call wrote.")
@click.option("--show", is_flag=True, help="Print the lines instead of writing them.")
@options.venv
@options.torch_index
@framed("hook")
def command(
    terminal: Terminal, tool: str, *, user: bool, remove: bool, show: bool, venv: str, torch_index: str | None
) -> Outcome:
    """Write the hook, print it, or take it out."""
    folder = Path.home() if user else Path.cwd()  # what a project chooses is not for all that the user does
    with open_project(folder, Settings(venv=Path(venv), torch_index=torch_index), terminal) as project:
        file = _file(tool, project, user=user)
        before = _text(file)
        if remove:
            status, text, bound = _remove(file, before or ""), "", ""
        else:
            base = project.catalog.torch_index if user else project.sources.torch_index
            hook = _hook(project, base, None if show else before)
            text, bound = _hooked(tool, file, "" if show else before or "", hook, project), f"{hook.bound}\n"
            status = "shown" if show else "unchanged" if text == before else "written"
            for name in filter(os.environ.get, (f"{tool.upper()}_FIND_LINKS", f"{tool.upper()}_CONSTRAINT")):
                terminal.warn(f"{name} is set: {tool} reads that instead")
            if tool == "uv" and not hook.uv_backend:
                terminal.warn("uv tool and uvx do not use the hook: what they read would also end up in uv.lock")
    if status == "written":
        _write(tool, file, text, bound)
    constraints = f"\n# {file.with_name(BOUND)}\n{bound}" if tool == "pip" else ""
    shown = f"# {file}\n{text}{constraints}".removesuffix("\n")
    data = {"tool": tool, "path": str(file), "status": status, "text": text, "bound": bound.strip()}
    return Outcome(data, lambda to: to.block(shown) if show else to.field("Hook", f"{file}: {status}"))


def refresh(project: Project) -> list[str]:
    """Write the hooks of this user and this folder again, where the driver or the GPUs have changed since.

    Return the files that were looked at.
    """
    files = {(user, tool): _file(tool, project, user=user) for user, tool in product((True, False), TOOLS)}
    try:
        for (user, tool), file in files.items():
            before = _text(file) or ""
            note = block_note(before)
            if note and not (project.settings.machine or note.startswith(fingerprint(project.machine))):
                hook = _hook(project, note.split()[1] if user else project.sources.torch_index, before)
                _write(tool, file, _hooked(tool, file, before, hook, project), f"{hook.bound}\n")
                project.reporter.step("Hook", f"{file}: {hook.build.name} now, because the driver or the GPUs changed")
    except GpuInstallError as error:
        project.reporter.warn(f"the hooks of pip and uv were not updated: {error.message}")
        return []
    return [str(file) for file in files.values()]


def _file(tool: str, project: Project, *, user: bool) -> Path:
    if user:
        return own_file(tool, os.environ)
    return project.folder / "uv.toml" if tool == "uv" else project.paths.venv / PIP_NAME


def _text(file: Path) -> str | None:
    """Read a file, each byte of it; None where there is none. Raise UsageError where it is no text."""
    try:
        with open_regular(file) as opened:
            return opened.read().decode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError("hook-unreadable", f"{file} cannot be read: {error}") from None


def _hook(project: Project, base: str, before: str | None) -> Hook:
    """The hook for this machine now, for what a file held; raise what a refused plan says."""
    from gpuinstall.cli.shellenv import UV_TAGS
    from gpuinstall.export.hooks import Hook
    from gpuinstall.lock.request import LockRequest

    catalog = replace(project.catalog, torch_index=base)
    plan = LockRequest(project.machine, Request(), catalog).plan
    is_new = before is None or (block_note(before) or "").endswith(" new")
    return Hook.of(plan, project.machine, catalog, by_name=UV_TAGS if base == OFFICIAL else (), new=is_new)


def _hooked(tool: str, file: Path, before: str, hook: Hook, project: Project) -> str:
    """The text of a file with the hook in it; raise UsageError where it would hide what a project says."""
    before = without_blocks(before)
    if tool == "pip":
        return hook.in_pip(before, file.with_name(BOUND), pip_links(os.environ, file, before))
    if not before and "[tool.uv" in (_text(file.with_name("pyproject.toml")) or ""):
        message = f"{file} would hide the [tool.uv] of the pyproject.toml beside it"
        raise UsageError("hook-hides", message, hint="gpuinstall hook uv --user   # or: gpuinstall export uv")
    pages = () if hook.uv_backend else [page for page in hook.pages if project.session.client.page(page)]
    return hook.in_uv(before, pages)


def _write(tool: str, file: Path, text: str, bound: str) -> None:
    """Write a hook; raise UsageError where a folder has no place of its own for it."""
    if file != own_file(tool, os.environ) and file.is_symlink():
        raise UsageError("link-elsewhere", f"{file} is a link, and its target may belong to others")
    if tool == "pip":
        if file != own_file(tool, os.environ) and not file.with_name("pyvenv.cfg").is_file():
            raise UsageError("environment-missing", f"{file.parent} is not an environment", hint="uv venv --seed")
        write_atomically(file.with_name(BOUND), bound)
    write_in_place(file, text)


def _remove(file: Path, before: str) -> str:
    """Take out what we wrote; a file that was not there before goes, unless something else has come into it."""
    note, after = block_note(before), without_blocks(before)
    if note is None:
        return "unchanged"
    if note.endswith(" new") and not after:
        remove_path(file)
    else:
        write_in_place(file, after)
    remove_path(file.with_name(BOUND))
    return "removed"
