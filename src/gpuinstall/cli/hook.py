"""``gpuinstall hook``: configure pip and uv to install compatible builds."""

from __future__ import annotations

import json
import os
import re
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING

import click
import tomli

from gpuinstall.base.advice import Advice, make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import (
    parse_ini,
    read_raw,
    real_path,
    retry,
    write_atomically,
)
from gpuinstall.base.request import Request
from gpuinstall.base.text import (
    BrokenBlockError,
    add_block,
    has_login,
    remove_block,
)
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, define_command
from gpuinstall.environments.guard import format_pip_section
from gpuinstall.sources import OFFICIAL
from gpuinstall.sources.configuration import (
    find_pip_values,
    find_user_file,
    parse_pip_options,
)
from gpuinstall.sources.requirements_file import convert_content_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.base.versions import Backend
    from gpuinstall.plan import Plan
    from gpuinstall.project import Project

CONSTRAINTS_NAME = "gpuinstall-constraints.txt"
"""Constraints file next to pip.conf. pip reads constraints only from files."""
_UV_TAGS = """
cpu cu80 cu90 cu91 cu92 cu100 cu101 cu102 cu110 cu111 cu112 cu113 cu114 cu115 cu116 cu117
cu118 cu120 cu121 cu122 cu123 cu124 cu125 cu126 cu128 cu129 cu130 cu132
"""
UV_TAGS = frozenset(_UV_TAGS.split())
"""The CUDA and CPU tags that uv 0.13.9 accepts for ``--torch-backend``."""
_HOOKED_PACKAGES = ("torch", "torchvision", "torchaudio", "torchcodec")
"""Packages whose index pages the hook configures, besides triton."""
_CONSTRAINTS_HEADER = "# Written by gpuinstall hook pip.\n"


@define_command(
    "torch_index",
    "remove",
    uses_project=False,
)
@click.argument("tool", type=click.Choice(["pip", "uv"]))
def hook_command(options: CommandOptions, tool: str) -> Outcome:
    """Add or remove settings that let pip or uv install compatible builds."""
    # Follow a link, as pip and uv do when they read the file.
    file = real_path(find_user_file(tool))
    before = _read_text(file)
    plain = _remove_hook(file, before)
    after = plain
    bound = ""
    if not options.remove:
        # The hook applies to all projects, so ignore the settings of this project.
        with options.open_project(folder=Path.home(), is_read_only=True) as project:
            after, bound = _add_hook(tool, file, plain, project)
        for setting in ("FIND_LINKS", "CONSTRAINT", "NO_CONFIG", "CONFIG_FILE"):
            name = f"{tool.upper()}_{setting}"
            value = os.environ.get(name)
            if value and real_path(value) != file:
                options.terminal.warn(
                    f"{name} is set; {tool} uses it instead of the hook"
                )
    if tool == "pip" and bound:
        # Write the file before pip.conf, because pip fails if it is missing.
        _write_constraints(file.with_name(CONSTRAINTS_NAME), bound)
    status = "unchanged"
    if after != before:
        status = "removed" if options.remove else "written"
        if after:
            # The new text can contain a login from another file.
            is_private = has_login(after) and not has_login(before)
            write_atomically(file, after, is_private=is_private)
        else:
            retry(file.unlink)
    constraints = file.with_name(CONSTRAINTS_NAME)
    if options.remove and tool == "pip" and _is_constraints_file(constraints):
        retry(constraints.unlink)
    data = {
        "tool": tool,
        "path": str(file),
        "status": status,
        "text": after,
        "bound": bound,
    }
    return Outcome(data, [("Hook", f"{file}: {status}")])


def _add_hook(
    tool: str,
    file: Path,
    plain: str,
    project: Project,
) -> tuple[str, str]:
    """Return pip's or uv's configuration with the hook, and its constraint.

    Args:
        tool: ``pip`` or ``uv``.
        file: The configuration file of the tool.
        plain: The text of the file without the hook.
        project: The project of the home folder.

    Raises:
        NoBuildError: No build runs on this machine.
        MachineError: The GPU or driver cannot be used.
        UsageError: The tool would be unable to parse the result.
    """
    plan = project.wants(Request()).plan
    backend = plan.choice.build.backend
    bound = make_torch_constraint(plan, project)
    torch_index = project.catalog.torch_index
    pages = list_hook_pages(backend, torch_index)
    # uv knows only the official index and some of its backends.
    is_known = torch_index == OFFICIAL and backend.tag in UV_TAGS
    client = project.open_session().client
    if tool == "pip" or is_known:
        silence = client.find_silence(pages[0])
        if silence:
            project.reporter.warn(
                f"{silence.sentence}; with the hook, {tool} installs torch only from there",
                make_command("hook", tool, "--remove", note="undoes it"),
            )
    if tool == "pip":
        with convert_content_errors(file, "malformed-configuration"):
            files = {**project.sources.pip, file: parse_pip_options(plain)}
        constraints = find_pip_values(files, "constraint")
        links = find_pip_values(files, "find-links")
        own = file.with_name(CONSTRAINTS_NAME).as_uri()
        lines = "\n".join(format_pip_section((*constraints, own), (*links, *pages)))
        # pip's configparser rejects duplicate sections.
        places = {r"^\[install\].*\n": lines.partition("\n")[2], "": lines}
        hooked = _insert_block(plain, places)
    else:
        hooked = _insert_values(plain, "constraint-dependencies", [bound])
        if not is_known:
            project.reporter.warn(
                "uv tool and uvx do not use the hook: a setting for them would also change uv.lock"
            )
            # uv fails if a page does not exist.
            pages = list(filter(client.page, pages))
            hooked = _insert_values(hooked, "pip.find-links", pages)
        else:
            # uv pip, uv tool, and uvx all read torch-backend.
            source = f"torch-backend = {json.dumps(backend.tag)}"
            hooked = add_block(hooked, [source])
    try:
        (parse_ini if tool == "pip" else tomli.loads)(hooked)
    except ValueError as error:
        raise UsageError(
            "hook-taken",
            f"{tool} cannot read {file} with the hook added; the file was not changed",
            why="it is malformed or already has a setting of the hook: torch-backend, or constraint or find-links in [install]",
            evidence=str(error),
            hint="Remove that setting, or move constraint and find-links to [global]",
        ) from None
    return hooked, bound


def _insert_values(text: str, key: str, values: Sequence[str]) -> str:
    """Insert values at the start of a list in a uv.toml."""
    table, _, name = key.rpartition(".")
    words = json.dumps(values)
    places = {
        rf"^({key}|\[{table}\].*\n(?:(?!\[).*\n)*?{name}) *= *\[": f"{words[1:-1]},",
        rf"^\[{table}\].*\n": f"{name} = {words}",
        "": f"{key} = {words}",
    }
    return _insert_block(text, places)


def _insert_block(text: str, places: Mapping[str, str]) -> str:
    """Insert a block at the first matching position in a text.

    Args:
        text: The text.
        places: The lines to insert, by a pattern for the preceding text.
    """
    for opening, lines in places.items():
        found = re.search(opening, text, re.MULTILINE)
        if found:
            return text[: found.end()] + add_block(text[found.end() :], [lines])
    return text


def make_torch_constraint(plan: Plan, project: Project) -> str:
    """Return a constraint that limits torch to builds for a backend."""
    backend = plan.choice.build.backend
    running = {build.torch for build in plan.runnable if build.backend == backend}
    machine = project.machine
    bound = [f"torch>={min(running)}", f"<={max(running)}"]
    others = {
        build.torch
        for build in project.catalog.with_kind(backend.kind).builds_for(
            machine.os, machine.arch
        )
        if build.backend == backend and build.torch not in running
    }
    bound += [
        f"!={torch}" for torch in sorted(others) if min(running) < torch < max(running)
    ]
    return ",".join(bound)


def list_hook_pages(backend: Backend, torch_index: str) -> list[str]:
    """Return the index pages that the hook sets for a backend.

    A page lists one package, so no other package can be installed from it.
    """
    kind = backend.kind
    tritons = {"cpu": [], "cuda": ["triton"]}
    # ROCm and XPU have their own triton, which has a longer name in older releases.
    names = [
        *_HOOKED_PACKAGES,
        *tritons.get(kind, [f"triton-{kind}", f"pytorch-triton-{kind}"]),
    ]
    return [f"{torch_index}/{backend.tag}/{name}/" for name in names]


def _write_constraints(file: Path, bound: str) -> None:
    """Write the constraints file to which pip's configuration refers.

    Raises:
        UsageError: The user created the existing file.
    """
    if exists(file) and not _is_constraints_file(file):
        raise UsageError(
            "hook-taken",
            f"{file} was not written by gpuinstall; not overwriting it",
            hint=Advice("mv", (str(file), f"{file}.mine")),
        )
    write_atomically(file, f"{_CONSTRAINTS_HEADER}{bound}\n")


def _is_constraints_file(file: Path) -> bool:
    return _read_text(file).startswith(_CONSTRAINTS_HEADER)


def _read_text(file: Path) -> str:
    """Read the text of a file unchanged, or "" if it does not exist."""
    try:
        return read_raw(file, None).decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            "hook-unreadable", f"{file} cannot be read: {reason}"
        ) from None


def _remove_hook(file: Path, text: str) -> str:
    try:
        plain = remove_block(text)
    except BrokenBlockError as error:
        raise UsageError(
            "hook-changed",
            f"{file} was not updated: the hook's lines in it were edited",
            why=str(error),
            hint=f"Delete the hook's lines and its two markers from {file}",
        ) from None
    if file.with_name(CONSTRAINTS_NAME).as_uri() in plain:
        keys = "install.constraint", "install.find-links"
        raise UsageError(
            "hook-changed",
            f"{file} was not updated: it no longer contains the hook's markers",
            why="pip config set or another program rewrote the file without its comments",
            hint=tuple(
                Advice("pip", ("config", "--user", "unset", key)) for key in keys
            ),
        )
    return plain
