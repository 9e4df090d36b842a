"""What plain pip and uv are to take on a machine, in their own configuration, as a marked block."""

from __future__ import annotations

import configparser
import json
from typing import TYPE_CHECKING

import tomli

from gpuinstall.base.errors import UsageError
from gpuinstall.base.marked_block import BOM, NEW, with_block
from gpuinstall.base.values import dataclass
from gpuinstall.environments.environment import fingerprint
from gpuinstall.environments.guard import pip_section

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gpuinstall.base.machine import Machine
    from gpuinstall.catalog import Build, Catalog
    from gpuinstall.plan import Plan

_FAMILY = ("torch", "torchvision", "torchaudio", "torchcodec")
_SHOW_CONFIGURATION = {
    "pip": "pip config debug   # names the file",
    "uv": "uv --show-settings pip list",
}


@dataclass(frozen=True)
class Hook:
    """Torch's builds that run on a machine."""

    build: Build
    """The one that is chosen for it."""
    index: str
    bound: str
    """The versions that run."""
    uv_backend: str | None
    """The word by which uv knows the index; None if it has none."""
    note: str
    """The machine, and the base of the index."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        machine: Machine,
        catalog: Catalog,
        *,
        by_name: Collection[str],
    ) -> Hook:
        """Return the builds of one backend, from the oldest to the newest that runs.

        What another index has of them (``2.14.1+cu132``), which a user may name beside, is excluded
        by name.

        Args:
            by_name: The backends whose index uv knows; none, if another index is meant.
        """
        build = plan.choice.build
        base = catalog.torch_index
        tag = build.backend.tag
        return cls(
            build=build,
            index=f"{base}/{tag}",
            bound=_bound(plan, machine, catalog),
            uv_backend=tag if tag in by_name else None,
            note=f"{fingerprint(machine)} {base}",
        )

    @property
    def pages(self) -> tuple[str, ...]:
        """Where the files of the family are listed: no other name ever comes from there."""
        names = list(_FAMILY)
        match self.build.backend.kind:
            case "cpu":
                pass
            case "cuda":
                names.append("triton")
            case kind:
                names += [f"triton-{kind}", f"pytorch-triton-{kind}"]
        return tuple(f"{self.index}/{name}/" for name in names)

    def in_uv(
        self,
        text: str,
        pages: Sequence[str],
        *,
        new: bool,
    ) -> str:
        """Return a ``uv.toml`` with it; raise UsageError if that says something else already.

        ``torch-backend`` counts for ``uv pip``, ``uv tool`` and ``uvx``.

        Args:
            pages: Those of another index, which all have to be there. They count for ``uv pip``
                alone: elsewhere they would come into every uv.lock.
            new: Whether there was no such file.
        """
        note = self.note + NEW * new
        _check(text, "uv", _parse_uv, "malformed-configuration")
        lines = [f"constraint-dependencies = [{json.dumps(self.bound)}]"]
        if self.uv_backend:
            lines.insert(0, f"torch-backend = {json.dumps(self.uv_backend)}")
        else:
            text = with_block(text, -1, note, ["[pip]", f"find-links = {json.dumps(pages)}"])
        text = with_block(text, 0, note, lines)
        _check(text, "uv", _parse_uv, "hook-taken")
        return text

    def in_pip(
        self,
        text: str,
        constraints: Sequence[str],
        links: Sequence[str],
        *,
        new: bool,
    ) -> str:
        """Return a ``pip.conf`` with it; raise UsageError if that says something else already.

        Args:
            constraints: The addresses of constraints files.
            links: The places that pip was told of before.
            new: Whether there was no such file.
        """
        lines = pip_section(constraints, (*links, *self.pages))
        _check(text, "pip", _parse_pip, "malformed-configuration")
        text = with_block(text, -1, self.note + NEW * new, lines)
        _check(text, "pip", _parse_pip, "hook-taken")
        return text


def _bound(
    plan: Plan,
    machine: Machine,
    catalog: Catalog,
) -> str:
    """Return the versions of the chosen backend that run here, and none of another that do not."""
    backend = plan.choice.build.backend
    running = {build.torch for build in plan.runnable if build.backend == backend}
    first = min(running)
    last = max(running)
    excluded = set()
    rivals = []
    for build in catalog.serving(backend.kind).builds_for(machine.os, machine.arch):
        if not first <= build.torch <= last:
            continue
        if build.backend == backend and build.torch not in running:
            excluded.add(build.torch)
        if build.labelled and build not in plan.runnable:
            rivals.append(build.name)
    exclusions = [f"!={version}" for version in (*sorted(excluded), *rivals)]
    return ",".join([f"torch>={first}", f"<={last}", *exclusions])


def _check(
    text: str,
    tool: str,
    parse: Callable[[str], object],
    code: str,
) -> None:
    """Raise UsageError if a tool cannot read its file, or the file says something twice now."""
    try:
        parse(text)
    except (ValueError, configparser.Error) as error:
        if code == "hook-taken":
            cause = "already has a setting of its own there"
            message = f"{tool}'s configuration {cause}; it was left unchanged"
            hint = f"Take that setting out of it\ngpuinstall hook {tool}"
        else:
            message = f"{tool} cannot read its own configuration; it was left unchanged"
            hint = _SHOW_CONFIGURATION[tool]
        evidence = str(error).replace("\n", " ")
        raise UsageError(
            code,
            message,
            evidence=evidence,
            hint=hint,
        ) from None


def _parse_uv(text: str) -> object:
    return tomli.loads(text.removeprefix(BOM))


def _parse_pip(text: str) -> None:
    configparser.RawConfigParser().read_string(text)
