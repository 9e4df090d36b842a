"""``gpuinstall hook``: let plain pip and uv take builds that run here, by a marked block in their configuration."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.base.errors import GpuInstallError, UsageError
from gpuinstall.base.files import read_raw, rewrite
from gpuinstall.base.marked_block import (
    NEW,
    BrokenBlockError,
    block_note,
    with_block,
    without_blocks,
)
from gpuinstall.base.request import Request
from gpuinstall.base.shell import quoted
from gpuinstall.base.sourcing import Sourcing
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.environments.environment import fingerprint
from gpuinstall.sources import OFFICIAL
from gpuinstall.sources.configuration import pip_words
from gpuinstall.sources.configuration_files import own_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.export.hooks import Hook
    from gpuinstall.project import Project

TOOLS = ("pip", "uv")
BOUND = "gpuinstall-constraints.txt"
"""The file beside pip.conf that holds the bound: pip takes constraints from files alone."""


@click.command(
    "hook", help="Make plain pip or uv install builds that run here, in other environments too."
)
@click.argument("tool", type=click.Choice(TOOLS))
@click.option("--remove", is_flag=True, help="Remove exactly what an earlier call wrote.")
@options.torch_source
@framed("hook")
def command(
    terminal: Terminal,
    tool: str,
    *,
    remove: bool,
    sourcing: Sourcing,
) -> Outcome:
    """Write the hook, or take it out."""
    file = own_file(tool, os.environ)
    text = constraint = ""
    # What a project chooses is not for all that the user does.
    with options.open_folder(sourcing, terminal, folder=Path.home()) as project:
        if remove:
            status = _remove(file)
        else:
            hook = _hook(project, project.catalog.torch_index)
            constraint = hook.bound
            before = _text(file)
            pages = _uv_pages(tool, hook, project)
            text = _hooked(tool, file, before, hook, pages)
            status = "unchanged" if text == before else "written"
            _warn_of_rivals(tool, hook, terminal)
            if status == "written":
                _write(tool, file, hook, pages)
    data = {
        "tool": tool,
        "path": str(file),
        "status": status,
        "text": text,
        "bound": constraint,
    }
    return Outcome(data, lambda screen: screen.field("Hook", f"{file}: {status}"))


def refresh(project: Project) -> list[str] | None:
    """Write the hooks of this user again, if the driver or the GPUs have changed since.

    Returns:
        The files that were looked at; None if one could not be written, so that the next command tries again.
    """
    files = []
    has_failed = False
    for tool in TOOLS:
        file = own_file(tool, os.environ)
        files.append(str(file))
        try:
            _refresh_one(tool, file, project)
        except GpuInstallError as error:
            has_failed = True
            project.reporter.warn(f"the hook in {file} was not updated: {error.message}")
    return None if has_failed else files


def _refresh_one(tool: str, file: Path, project: Project) -> None:
    note = _note(file, _text(file) or "")
    if note is None or note.startswith(fingerprint(project.machine)):
        return
    hook = _hook(project, note.split()[1])
    _write(tool, file, hook, _uv_pages(tool, hook, project))
    text = f"{file}: {hook.build.name} now, because the driver or the GPUs changed"
    project.reporter.step("Hook", text)


def _hook(project: Project, torch_index: str) -> Hook:
    """Return the hook for this machine now; raise the error of a rejected plan."""
    from gpuinstall.cli.shellenv import UV_TAGS
    from gpuinstall.export.hooks import Hook
    from gpuinstall.lock.request import LockRequest

    catalog = replace(project.catalog, torch_index=torch_index)
    plan = LockRequest(project.machine, Request(), catalog).plan
    tags = UV_TAGS if torch_index == OFFICIAL else ()
    return Hook.of(plan, project.machine, catalog, by_name=tags)


def _uv_pages(tool: str, hook: Hook, project: Project) -> tuple[str, ...]:
    """Return the pages of an index that uv has no word for, those that exist: uv fails at one that does not."""
    if tool == "pip" or hook.uv_backend:
        return ()
    return tuple(filter(project.session.client.page, hook.pages))


def _warn_of_rivals(tool: str, hook: Hook, terminal: Terminal) -> None:
    for setting in ("FIND_LINKS", "CONSTRAINT"):
        name = f"{tool.upper()}_{setting}"
        if os.environ.get(name):
            terminal.warn(f"{name} is set: {tool} reads that instead")
    if tool == "uv" and not hook.uv_backend:
        terminal.warn(
            "uv tool and uvx do not use the hook: what they read would also end up in uv.lock"
        )


def _hooked(tool: str, file: Path, before: str | None, hook: Hook, pages: Sequence[str]) -> str:
    """Return the text of a file with the hook in it."""
    is_new = before is None or _is_new(file, before)
    plain = _unhooked(file, before)
    if tool == "pip":
        constraints = pip_words(os.environ, file, plain, "constraint")
        links = pip_words(os.environ, file, plain, "find-links")
        bound = file.with_name(BOUND).as_uri()
        return hook.in_pip(plain, (*constraints, bound), links, new=is_new)
    return hook.in_uv(plain, pages, new=is_new)


def _write(tool: str, file: Path, hook: Hook, pages: Sequence[str]) -> None:
    """Write a hook into a file as it is now."""
    if tool == "pip":
        bound = file.with_name(BOUND)
        # Before the file that names it, which is never without it.
        _edit(bound, lambda before: _bounded(bound, hook, before))
    _edit(file, lambda before: _hooked(tool, file, before, hook, pages))


def _bounded(file: Path, hook: Hook, before: str | None) -> str:
    """Return the text of our constraints file; raise UsageError if another's file has its name."""
    if before and _note(file, before) is None:
        raise UsageError(
            "hook-taken",
            f"{file} is not a file that gpuinstall wrote; it was left unchanged",
            hint=f"mv {quoted(file)} {quoted(file)}.mine",
        )
    return with_block(_unhooked(file, before), -1, hook.note, [hook.bound])


def _remove(file: Path) -> str:
    """Take out what we wrote; return what was done."""
    if _note(file, _text(file) or "") is None:
        return "unchanged"
    _edit(file, lambda before: _removed(file, before))
    bound = file.with_name(BOUND)
    if _note(bound, _text(bound) or "") is not None:
        _edit(bound, lambda before: _removed(bound, before))
    return "removed"


def _removed(file: Path, before: str | None) -> str | None:
    """Return a text without the hook; None for a file that was not there before and has nothing else in it."""
    after = _unhooked(file, before)
    if not after and (file.name == BOUND or _is_new(file, before)):
        return None
    return after


def _edit(file: Path, edit: Callable[[str | None], str | None]) -> None:
    """Replace the text of a file, which is None if there is no file.

    Raises:
        UsageError: if it cannot be read.
    """

    def edit_bytes(before: bytes | None) -> bytes | None:
        after = edit(None if before is None else before.decode())
        return None if after is None else after.encode()

    try:
        rewrite(file, edit_bytes)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None


def _text(file: Path) -> str | None:
    """Return the text of a file, each byte of it; None if there is no file.

    Raises:
        UsageError: if it cannot be read, or is no text.
    """
    try:
        return read_raw(file).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or error
    return UsageError("hook-unreadable", f"{file} cannot be read: {reason}")


def _is_new(file: Path, text: str | None) -> bool:
    """Whether the note in a file says that we made the file."""
    return (_note(file, text or "") or "").endswith(NEW)


def _note(file: Path, text: str) -> str | None:
    try:
        note = block_note(text)
    except BrokenBlockError as error:
        raise _broken(file, error) from None
    # `pip config set` writes the file again without its comments.
    if note is None and file.with_name(BOUND).absolute().as_uri() in text:
        unset = "pip config --user unset install"
        raise UsageError(
            "hook-changed",
            f"{file} was left unchanged: the markers of the hook in it are gone",
            why="pip config set, or another program, wrote the file again without its comments",
            hint=f"{unset}.constraint\n{unset}.find-links",
        )
    return note


def _unhooked(file: Path, text: str | None) -> str:
    try:
        return without_blocks(text or "")
    except BrokenBlockError as error:
        raise _broken(file, error) from None


def _broken(file: Path, error: BrokenBlockError) -> UsageError:
    return UsageError(
        "hook-changed",
        f"{file} was left unchanged: the lines of the hook in it are not as they were written",
        why=str(error),
        hint=f"Delete the lines of the hook and its two markers from {file} by hand",
    )
