"""``gpuinstall hook``: plain pip and uv take builds that run here, by their configuration."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING

import click
import tomli

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import (
    parse_ini,
    read_raw,
    real_path,
    write_atomically,
)
from gpuinstall.base.request import Request
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import (
    BrokenBlockError,
    has_login,
    with_block,
    without_block,
)
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.environments.guard import pip_section
from gpuinstall.sources import OFFICIAL
from gpuinstall.sources.configuration import own_file, pip_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.base.versions import Backend
    from gpuinstall.plan import Plan
    from gpuinstall.project import Project

BOUND = "gpuinstall-constraints.txt"
"""The file beside pip.conf that holds the bound: pip takes constraints from files alone."""
_UV_TAGS = """
cpu cu80 cu90 cu91 cu92 cu100 cu101 cu102 cu110 cu111 cu112 cu113 cu114 cu115 cu116 cu117
cu118 cu120 cu121 cu122 cu123 cu124 cu125 cu126 cu128 cu129 cu130 cu132
"""
UV_TAGS = frozenset(_UV_TAGS.split())
"""The tags of CUDA and CPU builds that uv 0.13.8 takes for ``--torch-backend``."""
_HOOKED = ("torch", "torchvision", "torchaudio", "torchcodec")
"""The packages that the hook names a source for, beside triton: those that people request."""
_BOUND_HEAD = "# Written by gpuinstall hook pip.\n"


@framed(
    "hook",
    "Configure plain pip or uv to select builds that run on this machine, in all environments.",
    "torch_index",
    "remove",
    serves_folder=False,
)
@click.argument("tool", type=click.Choice(["pip", "uv"]))
def command(options: CommandOptions, tool: str) -> Outcome:
    """Write the hook, or take it out."""
    # That of a link is the file behind it.
    file = real_path(own_file(tool, os.environ))
    before = _text(file)
    plain = _unhooked(file, before)
    after = plain
    bound = ""
    if not options.remove:
        # What a project chooses is not for all that the user does.
        with options.open(folder=Path.home(), only_looks=True) as project:
            after, bound = _hooked(tool, file, plain, project)
        for setting in ("FIND_LINKS", "CONSTRAINT", "NO_CONFIG", "CONFIG_FILE"):
            name = f"{tool.upper()}_{setting}"
            value = os.environ.get(name)
            if value and real_path(value) != file:
                options.terminal.warn(f"{name} is set: {tool} heeds that instead")
    if tool == "pip" and bound:
        # Before the file that names it: pip fails at a constraints file that is not there.
        _write_bound(file.with_name(BOUND), bound)
    status = "unchanged"
    if after != before:
        status = "removed" if options.remove else "written"
        _write(file, after, before)
    if options.remove:
        # And after it here, for the same reason.
        if tool == "pip" and _is_bound(file.with_name(BOUND)):
            file.with_name(BOUND).unlink()
        # A folder that was made for the file alone goes with it.
        with suppress(OSError):  # the user's other files stay
            file.parent.rmdir()
    data = {
        "tool": tool,
        "path": str(file),
        "status": status,
        "text": after,
        "bound": bound,
    }
    return Outcome(data, [("Hook", f"{file}: {status}")])


def _hooked(
    tool: str,
    file: Path,
    plain: str,
    project: Project,
) -> tuple[str, str]:
    """Return a text with the hook for this machine, and the versions that run.

    Args:
        tool: ``pip`` or ``uv``.
        file: The tool's configuration, which the text is to be written to.
        plain: What it holds without the hook.
        project: The run.

    Raises:
        NoBuildError: no build runs here, or MachineError.
        UsageError: the tool could not read the file then.
    """
    from gpuinstall.lock.request.lock_request import LockRequest

    plan = LockRequest(project.machine, Request(), project.catalog).plan
    backend = plan.choice.build.backend
    bound = bound_of(plan, project)
    torch_index = project.catalog.torch_index
    pages = pages_of(backend, torch_index)
    if tool == "pip":
        constraints = pip_words(os.environ, file, plain, "constraint")
        links = pip_words(os.environ, file, plain, "find-links")
        own = file.with_name(BOUND).as_uri()
        lines = "\n".join(pip_section((*constraints, own), (*links, *pages)))
        # A section stands in pip's files once.
        places = {r"^\[install\].*\n": lines.partition("\n")[2], "": lines}
        hooked = _with_block_in(plain, places)
    else:
        hooked = _with_values(plain, "constraint-dependencies", [bound])
        if torch_index != OFFICIAL or backend.tag not in UV_TAGS:
            project.reporter.warn(
                "uv tool and uvx do not use the hook: what they read would also end up in uv.lock"
            )
            # uv fails at a page that does not exist.
            pages = list(filter(project.session.client.page, pages))
            hooked = _with_values(hooked, "pip.find-links", pages)
        else:
            # uv's own word for the index counts for uv pip, uv tool and uvx.
            source = f"torch-backend = {json.dumps(backend.tag)}"
            hooked = with_block(hooked, [source])
    try:
        (parse_ini if tool == "pip" else tomli.loads)(hooked)
    except ValueError as error:
        raise UsageError(
            "hook-taken",
            f"{tool} could not read {file} with the hook; it was left unchanged",
            why="it is malformed, or has what the hook sets: torch-backend; constraint or find-links in [install]",
            evidence=str(error),
            hint="Delete that from it; constraint and find-links count in [global] too",
        ) from None
    return hooked, bound


def _with_values(text: str, key: str, values: Sequence[str]) -> str:
    """Return the text of a uv.toml with values in one of its lists, before those that it has there."""
    table, _, name = key.rpartition(".")
    words = json.dumps(values)
    places = {
        rf"^({key}|\[{table}\].*\n(?:(?!\[).*\n)*?{name}) *= *\[": f"{words[1:-1]},",
        rf"^\[{table}\].*\n": f"{name} = {words}",
        "": f"{key} = {words}",
    }
    return _with_block_in(text, places)


def _with_block_in(text: str, places: Mapping[str, str]) -> str:
    """Return a text with the lines of the first place in it, each of which is told by how it opens."""
    for opening, lines in places.items():
        found = re.search(opening, text, re.MULTILINE)
        if found:
            return text[: found.end()] + with_block(text[found.end() :], [lines])
    return text


def bound_of(plan: Plan, project: Project) -> str:
    """Return the versions of the backend that a plan has chosen which run on the machine, as one requirement."""
    backend = plan.choice.build.backend
    running = {build.torch for build in plan.runnable if build.backend == backend}
    machine = project.machine
    bound = [f"torch>={min(running)}", f"<={max(running)}"]
    others = {
        build.torch
        for build in project.catalog.serving(backend.kind).builds_for(
            machine.os, machine.arch
        )
        if build.backend == backend and build.torch not in running
    }
    bound += [
        f"!={torch}" for torch in sorted(others) if min(running) < torch < max(running)
    ]
    return ",".join(bound)


def pages_of(backend: Backend, torch_index: str) -> list[str]:
    """Return where the hooked packages are listed for a backend: no other name ever comes from there.

    Args:
        backend: The chosen one.
        torch_index: The base of PyTorch's index.
    """
    kind = backend.kind
    tritons = {"cpu": [], "cuda": ["triton"]}
    # For ROCm and XPU triton is a package of its own, which older releases call by the longer name.
    names = [*_HOOKED, *tritons.get(kind, [f"triton-{kind}", f"pytorch-triton-{kind}"])]
    return [f"{torch_index}/{backend.tag}/{name}/" for name in names]


def _write_bound(file: Path, bound: str) -> None:
    """Write our constraints file; raise UsageError if another's file has its name."""
    if exists(file) and not _is_bound(file):
        raise UsageError(
            "hook-taken",
            f"{file} is not a file that gpuinstall wrote; it was left unchanged",
            hint=f"mv {quoted(file)} {quoted(file)}.mine",
        )
    write_atomically(file, f"{_BOUND_HEAD}{bound}\n")


def _is_bound(file: Path) -> bool:
    return _text(file).startswith(_BOUND_HEAD)


def _write(
    file: Path,
    after: str,
    before: str,
) -> None:
    """Write a file of the user's; one that has nothing but the hook goes with it.

    Args:
        file: The file.
        after: What it is to hold; empty: it goes.
        before: What it held when it was read.

    Raises:
        UsageError: It is another than before.
    """
    if _text(file) != before:
        raise UsageError(
            "hook-changed",
            f"{file} was left unchanged: another program has changed it meanwhile",
            hint="Run it again",
        )
    if not after:
        file.unlink()
        return
    # A login of another file that is taken over stays as private as it was.
    is_private = has_login(after) and not has_login(before)
    write_atomically(file, after, is_private=is_private)


def _text(file: Path) -> str:
    """Return the text of a file, each byte of it, empty if there is no file; raise UsageError if it is no text."""
    try:
        return read_raw(file).decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            "hook-unreadable", f"{file} cannot be read: {reason}"
        ) from None


def _unhooked(file: Path, text: str) -> str:
    try:
        plain = without_block(text)
    except BrokenBlockError as error:
        raise UsageError(
            "hook-changed",
            f"{file} was left unchanged: the lines of the hook in it are not as they were written",
            why=str(error),
            hint=f"Delete the lines of the hook and its two marks from {file} by hand",
        ) from None
    if file.with_name(BOUND).as_uri() in plain:
        unset = "pip config --user unset install"
        raise UsageError(
            "hook-changed",
            f"{file} was left unchanged: the marks of the hook in it are gone",
            why="pip config set, or another program, wrote the file again without its comments",
            hint=f"{unset}.constraint\n{unset}.find-links",
        )
    return plain
