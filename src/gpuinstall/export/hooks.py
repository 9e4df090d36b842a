"""What plain pip and uv are to take on a machine, in their own configuration, as a marked block."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import tomli

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import parse_ini
from gpuinstall.base.text import with_block
from gpuinstall.environments.guard import pip_section

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuinstall.base.machine import Machine
    from gpuinstall.catalog import Build, Catalog
    from gpuinstall.plan import Plan

_FAMILY = ("torch", "torchvision", "torchaudio", "torchcodec")
_SHOW_CONFIGURATION = {
    "pip": "pip config debug   # names the file",
    "uv": "uv --show-settings pip list",
}


def bound_of(plan: Plan, machine: Machine, catalog: Catalog) -> str:
    """Return the versions of the chosen backend that run on the plan's machine."""
    backend = plan.choice.build.backend
    running = {build.torch for build in plan.runnable if build.backend == backend}
    bound = [f"torch>={min(running)}", f"<={max(running)}"]
    others = {
        build.torch
        for build in catalog.serving(backend.kind).builds_for(machine.os, machine.arch)
        if build.backend == backend and build.torch not in running
    }
    bound += [
        f"!={torch}" for torch in sorted(others) if min(running) < torch < max(running)
    ]
    return ",".join(bound)


def pages_of(build: Build, torch_index: str) -> list[str]:
    """Return where the files of the family are listed for a build: no other name ever comes from there."""
    kind = build.backend.kind
    tritons = {"cpu": [], "cuda": ["triton"]}
    names = [*_FAMILY, *tritons.get(kind, [f"triton-{kind}", f"pytorch-triton-{kind}"])]
    return [f"{torch_index}/{build.backend.tag}/{name}/" for name in names]


def in_uv(text: str, bound: str, backend: str | None, pages: Sequence[str]) -> str:
    """Return a ``uv.toml`` with the hook; raise UsageError if that says something else already.

    Args:
        text: The file without the hook.
        bound: The versions that run.
        backend: The word by which uv knows the index, for ``uv pip``, ``uv tool`` and ``uvx``; None if it has none.
        pages: Those of an index that it has no word for, which all have to be there. They count for ``uv pip`` alone:
            elsewhere they would come into every uv.lock.
    """
    source = f"torch-backend = {json.dumps(backend)}"
    if backend is None:
        source = f"pip.find-links = {json.dumps(pages)}"
    lines = [source, f"constraint-dependencies = [{json.dumps(bound)}]"]
    return _checked("uv", text, lines, tomli.loads)


def in_pip(text: str, constraints: Sequence[str], links: Sequence[str]) -> str:
    """Return a ``pip.conf`` with the hook; raise UsageError if that says something else already.

    Args:
        text: The file without the hook.
        constraints: The addresses of constraints files.
        links: The places that pip takes files from.
    """
    return _checked("pip", text, pip_section(constraints, links), parse_ini)


def _checked(
    tool: str, text: str, lines: Sequence[str], parse: Callable[[str], object]
) -> str:
    """Return a text with a block; raise UsageError if a tool could not read the file then."""
    hooked = with_block(text, lines)
    try:
        parse(hooked)
    except ValueError as error:
        raise UsageError(
            "hook-taken",
            f"{tool} could not read its configuration with the hook; it was left unchanged",
            why="it is malformed, or already has a setting of its own there",
            evidence=str(error),
            hint=_SHOW_CONFIGURATION[tool],
        ) from None
    return hooked
