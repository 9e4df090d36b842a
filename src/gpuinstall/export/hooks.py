"""What plain pip and uv are to take on a machine, in their own configuration, as a marked block."""

from __future__ import annotations

import configparser
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tomli

from gpuinstall.environments.environment import fingerprint
from gpuinstall.environments.guard import pip_section
from gpuinstall.errors import UsageError
from gpuinstall.marked_block import BOM, NEW, with_block

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gpuinstall.catalog import Build, Catalog
    from gpuinstall.machine import Machine
    from gpuinstall.plan import Plan

_FAMILY = ("torch", "torchvision", "torchaudio", "torchcodec")


@dataclass(frozen=True)
class Hook:
    """Torch's builds that run on a machine: the ``build`` chosen for it, its ``index``, and the ``bound`` of versions.

    ``uv_backend`` is the word by which uv knows the index, None where it has none; ``note`` the machine and the base
    of the index.
    """

    build: Build
    index: str
    bound: str
    uv_backend: str | None
    note: str

    @classmethod
    def of(cls, plan: Plan, machine: Machine, catalog: Catalog, *, by_name: Collection[str]) -> Hook:
        """The builds of one backend, from the oldest to the newest that runs, and none that does not.

        What another index has of them (``2.14.1+cu132``), which a person may name beside, is excluded by name.
        ``by_name`` are the backends whose index uv knows; none, where another index is meant.
        """
        build, base = plan.choice.build, catalog.torch_index
        runs = {other.torch for other in plan.runnable if other.backend == build.backend}
        every = catalog.serving(build.backend.kind).builds_for(machine.os, machine.arch)
        builds = [other for other in every if min(runs) <= other.torch <= max(runs)]
        excluded = sorted({other.torch for other in builds if other.backend == build.backend} - runs)
        rivals = [other.name for other in builds if other.labelled and other not in plan.runnable]
        bound = [f"torch>={min(runs)}", f"<={max(runs)}", *(f"!={version}" for version in (*excluded, *rivals))]
        tag, note = build.backend.tag, f"{fingerprint(machine)} {base}"
        return cls(build, f"{base}/{tag}", ",".join(bound), tag if tag in by_name else None, note)

    @property
    def pages(self) -> tuple[str, ...]:
        """Where the files of the family are listed: no other name ever comes from there."""
        kind = self.build.backend.kind
        own = {"cpu": (), "cuda": ("triton",)}.get(kind, (f"triton-{kind}", f"pytorch-triton-{kind}"))
        return tuple(f"{self.index}/{name}/" for name in (*_FAMILY, *own))

    def in_uv(self, text: str, pages: Sequence[str], *, new: bool) -> str:
        """Write it into a ``uv.toml``; raise UsageError where that says something else already.

        ``torch-backend`` counts for ``uv pip``, ``uv tool`` and ``uvx``; the ``pages`` of another index, which all have
        to be there, for ``uv pip`` alone: elsewhere they would come into every uv.lock. ``new`` says that there was no
        such file.
        """
        note = self.note + NEW * new
        backend = [f"torch-backend = {json.dumps(self.uv_backend)}"] if self.uv_backend else []
        _check(text, "uv", _parse_uv, "malformed-configuration")
        if not backend:
            text = with_block(text, -1, note, ["[pip]", f"find-links = {json.dumps(pages)}"])
        text = with_block(text, 0, note, [*backend, f"constraint-dependencies = [{json.dumps(self.bound)}]"])
        _check(text, "uv", _parse_uv, "hook-taken")
        return text

    def in_pip(self, text: str, constraints: Sequence[str], links: Sequence[str], *, new: bool) -> str:
        """Write it into a ``pip.conf``; raise UsageError where that says something else already.

        ``constraints`` are the addresses of constraints files, ``links`` the places that pip was told of before.
        """
        lines = pip_section(constraints, (*links, *self.pages))
        _check(text, "pip", _parse_pip, "malformed-configuration")
        text = with_block(text, -1, self.note + NEW * new, lines)
        _check(text, "pip", _parse_pip, "hook-taken")
        return text


def _check(text: str, tool: str, parse: Callable[[str], object], code: str) -> None:
    """Raise UsageError where a tool cannot read its file, or the file says something twice now."""
    try:
        parse(text)
    except (ValueError, configparser.Error) as error:
        evidence = str(error).replace("\n", " ")
        if code == "hook-taken":
            message = f"{tool}'s configuration already has a setting of its own there; it was left unchanged"
            hint = f"gpuinstall hook {tool} --show   # prints the lines to add by hand"
        else:
            message = f"{tool} cannot read its own configuration; it was left unchanged"
            hint = "pip config debug   # names the file" if tool == "pip" else "uv --show-settings pip list"
        raise UsageError(code, message, evidence=evidence, hint=hint) from None


def _parse_uv(text: str) -> object:
    return tomli.loads(text.removeprefix(BOM))


def _parse_pip(text: str) -> None:
    configparser.RawConfigParser().read_string(text)
