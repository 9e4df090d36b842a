"""``gpuinstall hook``: let plain pip and uv take builds that run here, by a marked block in their configuration."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.environments.environment import fingerprint
from gpuinstall.errors import GpuInstallError, UsageError
from gpuinstall.files import read_raw, rewrite
from gpuinstall.marked_block import NEW, BrokenBlockError, block_note, with_block, without_blocks
from gpuinstall.project import Project, Settings, open_project
from gpuinstall.request import Request
from gpuinstall.shell import quoted
from gpuinstall.sources import OFFICIAL
from gpuinstall.sources.configuration import PIP_NAME, own_file, pip_words
from gpuinstall.sourcing import Sourcing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.export.hooks import Hook

TOOLS = ("pip", "uv")
BOUND = "gpuinstall-constraints.txt"
"""The file beside pip.conf that holds the bound: pip takes constraints from files alone."""


@click.command(
    "hook", help="Make plain pip or uv install builds that run here, in other environments too."
)
@click.argument("tool", type=click.Choice(TOOLS))
@click.option(
    "--user/--project",
    "user",
    default=True,
    help="For this user (the default), or for this folder.",
)
@click.option("--remove", is_flag=True, help="Remove exactly what an earlier call wrote.")
@click.option("--show", is_flag=True, help="Print the lines instead of writing them.")
@options.venv
@options.torch_index
@framed("hook")
def command(
    terminal: Terminal,
    tool: str,
    *,
    user: bool,
    remove: bool,
    show: bool,
    venv: str,
    torch_index: str | None,
) -> Outcome:
    """Write the hook, print it, or take it out."""
    folder = (
        Path.home() if user else Path.cwd()
    )  # what a project chooses is not for all that the user does
    text = bound = ""
    with open_project(
        folder, Settings(Request((), sourcing=Sourcing(torch_index)), venv=Path(venv)), terminal
    ) as project:
        file = _file(tool, project, user=user)
        if remove:
            status = _remove(tool, file)
        else:
            hook = _hook(
                project, project.catalog.torch_index if user else project.sources.torch_index
            )
            bound = hook.bound
            pages = () if show else _uv_pages(tool, hook, project)
            before = None if show else _text(file)
            text = _hooked(tool, file, before, hook, pages or hook.pages)
            status = "shown" if show else "unchanged" if text == before else "written"
            _warn_of_rivals(tool, hook, terminal)
            if status == "written":
                _write(tool, file, hook, pages)
    constraints = f"\n# {file.with_name(BOUND)}\n{bound}\n" if tool == "pip" else ""
    shown = f"# {file}\n{text}{constraints}".removesuffix("\n")
    data = {"tool": tool, "path": str(file), "status": status, "text": text, "bound": bound}
    return Outcome(
        data, lambda to: to.block(shown) if show else to.field("Hook", f"{file}: {status}")
    )


def refresh(project: Project) -> list[str] | None:
    """Write the hooks of this user and this folder again, where the driver or the GPUs have changed since.

    Return the files that were looked at; None if one could not be written, so that the next command tries again.
    """
    files = {
        (user, tool): _file(tool, project, user=user)
        for user, tool in product((True, False), TOOLS)
    }
    if project.settings.machine:
        return [*map(str, files.values())]
    failures = [
        _refresh_one(tool, file, project, user=user) for (user, tool), file in files.items()
    ]
    for file, failure in zip(files.values(), failures, strict=True):
        if failure:
            project.reporter.warn(f"the hook in {file} was not updated: {failure.message}")
    return None if any(failures) else [*map(str, files.values())]


def _refresh_one(tool: str, file: Path, project: Project, *, user: bool) -> GpuInstallError | None:
    """Write one hook again, if the driver or the GPUs have changed since; return what is against it."""
    try:
        note = _note(file, _text(file) or "")
        if note is None or note.startswith(fingerprint(project.machine)):
            return None
        hook = _hook(project, note.split()[1] if user else project.sources.torch_index)
        _write(tool, file, hook, _uv_pages(tool, hook, project))
    except GpuInstallError as error:
        return error
    project.reporter.step(
        "Hook", f"{file}: {hook.build.name} now, because the driver or the GPUs changed"
    )
    return None


def _file(tool: str, project: Project, *, user: bool) -> Path:
    if user:
        return own_file(tool, os.environ)
    return project.folder / "uv.toml" if tool == "uv" else project.paths.venv / PIP_NAME


def _hook(project: Project, base: str) -> Hook:
    """Return the hook for this machine now; raise what a refused plan says."""
    from gpuinstall.cli.shellenv import UV_TAGS
    from gpuinstall.export.hooks import Hook
    from gpuinstall.lock.request import LockRequest

    catalog = replace(project.catalog, torch_index=base)
    plan = LockRequest(project.machine, Request(), catalog).plan
    return Hook.of(plan, project.machine, catalog, by_name=UV_TAGS if base == OFFICIAL else ())


def _uv_pages(tool: str, hook: Hook, project: Project) -> tuple[str, ...]:
    """Return the pages of an index that uv knows no word for, those that are there: uv fails at one that is not."""
    if tool == "pip" or hook.uv_backend:
        return ()
    return tuple(page for page in hook.pages if project.session.client.page(page))


def _warn_of_rivals(tool: str, hook: Hook, terminal: Terminal) -> None:
    for name in filter(
        os.environ.get, (f"{tool.upper()}_FIND_LINKS", f"{tool.upper()}_CONSTRAINT")
    ):
        terminal.warn(f"{name} is set: {tool} reads that instead")
    if tool == "uv" and not hook.uv_backend:
        terminal.warn(
            "uv tool and uvx do not use the hook: what they read would also end up in uv.lock"
        )


def _hooked(tool: str, file: Path, before: str | None, hook: Hook, pages: Sequence[str]) -> str:
    """Return the text of a file with the hook in it; raise UsageError where it would hide what a project says."""
    note = _note(file, before or "")
    is_new = before is None or (note or "").endswith(NEW)
    plain = _unhooked(file, before or "")
    if tool == "pip":
        constraints = pip_words(os.environ, file, plain, "constraint")
        links = pip_words(os.environ, file, plain, "find-links")
        return hook.in_pip(plain, (*constraints, file.with_name(BOUND).as_uri()), links, new=is_new)
    if not plain and "[tool.uv" in (_text(file.with_name("pyproject.toml")) or ""):
        message = f"{file} would hide the [tool.uv] of the pyproject.toml beside it"
        raise UsageError(
            "hook-hides", message, hint="gpuinstall hook uv --user   # or: gpuinstall export uv"
        )
    return hook.in_uv(plain, pages, new=is_new)


def _write(tool: str, file: Path, hook: Hook, pages: Sequence[str]) -> None:
    """Write a hook into a file as it is now; raise UsageError where a folder has no place of its own for it."""
    _check_links(tool, file)
    if tool == "pip":
        if file != own_file(tool, os.environ) and not file.with_name("pyvenv.cfg").is_file():
            raise UsageError(
                "environment-missing", f"{file.parent} is not an environment", hint="uv venv --seed"
            )
        # Before the file that names it, which is never without it.
        _edit(file.with_name(BOUND), partial(_bounded, file.with_name(BOUND), hook))
    _edit(file, lambda before: _hooked(tool, file, before, hook, pages))


def _check_links(tool: str, file: Path) -> None:
    """Raise UsageError if a file of the folder's hook is a link: the folder may come from a stranger."""
    if file == own_file(tool, os.environ):
        return
    for path in (file, file.with_name(BOUND)):
        if path.is_symlink():
            raise UsageError(
                "link-elsewhere", f"{path} is a link, and its target may belong to others"
            )


def _bounded(file: Path, hook: Hook, before: str | None) -> str:
    """Return the text of our constraints file; raise UsageError where another's file has its name."""
    if _note(file, before or "") is None and before:
        message = f"{file} is not a file that gpuinstall wrote; it was left unchanged"
        raise UsageError("hook-taken", message, hint=f"mv {quoted(file)} {quoted(file)}.mine")
    return with_block(_unhooked(file, before or ""), -1, hook.note, [hook.bound])


def _remove(tool: str, file: Path) -> str:
    """Take out what we wrote; a file that was not there before goes, unless something else has come into it."""
    if _note(file, _text(file) or "") is None:
        return "unchanged"
    _check_links(tool, file)

    def without(place: Path, before: str | None) -> str | None:
        after = _unhooked(place, before or "")
        is_new = (_note(place, before or "") or "").endswith(NEW) or place.name == BOUND
        return None if is_new and not after else after

    _edit(file, partial(without, file))
    bound = file.with_name(BOUND)
    if _note(bound, _text(bound) or "") is not None:
        _edit(bound, partial(without, bound))
    return "removed"


def _edit(file: Path, edit: Callable[[str | None], str | None]) -> None:
    """Replace the text of a file, which is None where there is no file; raise UsageError where it cannot be read."""

    def edit_bytes(before: bytes | None) -> bytes | None:
        after = edit(None if before is None else before.decode())
        return None if after is None else after.encode()

    try:
        rewrite(file, edit_bytes)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None


def _text(file: Path) -> str | None:
    """Read a file, each byte of it; None where there is none. Raise UsageError where it is no text."""
    try:
        return read_raw(file).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> UsageError:
    return UsageError(
        "hook-unreadable", f"{file} cannot be read: {getattr(error, 'strerror', None) or error}"
    )


def _note(file: Path, text: str) -> str | None:
    try:
        note = block_note(text)
    except BrokenBlockError as error:
        raise _broken(file, error) from None
    # `pip config set` writes the file again without its comments.
    if note is None and file.with_name(BOUND).absolute().as_uri() in text:
        level = "--user" if file == own_file("pip", os.environ) else "--site"
        message = f"{file} was left unchanged: the markers of the hook in it are gone"
        why = "pip config set, or another program, wrote the file again without its comments"
        commands = (
            f"pip config {level} unset install.{name}" for name in ("constraint", "find-links")
        )
        raise UsageError("hook-changed", message, why=why, hint="\n".join(commands))
    return note


def _unhooked(file: Path, text: str) -> str:
    try:
        return without_blocks(text)
    except BrokenBlockError as error:
        raise _broken(file, error) from None


def _broken(file: Path, error: BrokenBlockError) -> UsageError:
    message = f"{file} was left unchanged: the lines of the hook in it are not as they were written"
    hint = f"Delete the lines of the hook and its two markers from {file} by hand"
    return UsageError("hook-changed", message, why=str(error), hint=hint)
