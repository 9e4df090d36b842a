"""What plain pip and uv are to take on a machine, in their own configuration, as a marked block."""

from __future__ import annotations

import configparser
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tomli

from gpuinstall.environments.environment import fingerprint
from gpuinstall.errors import UsageError
from gpuinstall.marked_block import with_block

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from gpuinstall.catalog import Build, Catalog
    from gpuinstall.machine import Machine
    from gpuinstall.plan import Plan

_FAMILY = ("torch", "torchvision", "torchaudio", "torchcodec")


@dataclass(frozen=True)
class Hook:
    """Torch's builds that run on a machine: the ``build`` chosen for it, its ``index``, and the ``bound`` of versions.

    ``uv_backend`` is the word by which uv knows the index, None where it has none; ``note`` the machine, the base of
    the index, and whether the file is a new one.
    """

    build: Build
    index: str
    bound: str
    uv_backend: str | None
    note: str

    @classmethod
    def of(cls, plan: Plan, machine: Machine, catalog: Catalog, *, by_name: Collection[str], new: bool) -> Hook:
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
        tag, note = build.backend.tag, f"{fingerprint(machine)} {base}{' new' * new}"
        return cls(build, f"{base}/{tag}", ",".join(bound), tag if tag in by_name else None, note)

    @property
    def pages(self) -> tuple[str, ...]:
        """Where the files of the family are listed: no other name ever comes from there."""
        kind = self.build.backend.kind
        own = {"cpu": (), "cuda": ("triton",)}.get(kind, (f"triton-{kind}", f"pytorch-triton-{kind}"))
        return tuple(f"{self.index}/{name}/" for name in (*_FAMILY, *own))

    def in_uv(self, text: str, pages: Sequence[str]) -> str:
        """Write it into a ``uv.toml``; raise UsageError where that says something else already.

        ``torch-backend`` counts for ``uv pip``, ``uv tool`` and ``uvx``; the ``pages`` of another index, which all have
        to be there, for ``uv pip`` alone: elsewhere they would come into every uv.lock.
        """
        backend = [f"torch-backend = {json.dumps(self.uv_backend)}"] if self.uv_backend else []
        if not backend:
            text = with_block(text, -1, self.note, ["[pip]", f"find-links = {json.dumps(pages)}"])
        text = with_block(text, 0, self.note, [*backend, f"constraint-dependencies = [{json.dumps(self.bound)}]"])
        return _checked(text, "uv", tomli.loads)

    def in_pip(self, text: str, constraints: Path, links: Sequence[str]) -> str:
        """Write it into a ``pip.conf``; raise UsageError where that says something else already.

        ``constraints`` is the file of the bound, ``links`` are the places that pip was told of before.
        """
        pages = [f"    {page}" for page in (*links, *self.pages)]
        lines = ["[install]", f"constraint = {constraints.as_uri()}", "find-links =", *pages]
        return _checked(with_block(text, -1, self.note, lines), "pip", configparser.RawConfigParser().read_string)


def _checked(text: str, tool: str, parse: Callable[[str], object]) -> str:
    """Raise UsageError where a file says something twice now: what it says itself stays as it is."""
    try:
        parse(text)
    except (ValueError, configparser.Error) as error:
        message = f"{tool}'s configuration already has a setting of its own there; it was left unchanged"
        hint = f"gpuinstall hook {tool} --show   # prints the lines to add by hand"
        raise UsageError("hook-taken", message, evidence=str(error).replace("\n", " "), hint=hint) from None
    return text
