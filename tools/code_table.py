"""Makes ``docs/evidence/code.md``: which GPUs torch alone serves, and which the programs beside it have code for.

Reads the newest wheel of each program on the default index in parts, some MB of each: ``python -m tools.code_table``.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall import Request, choose
from gpuinstall.catalog import load_catalog
from gpuinstall.errors import InstallationError
from gpuinstall.learned.newest import Place, learn
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.row import misfit
from gpuinstall.learned.store import learned_store
from gpuinstall.reporter import SilentReporter
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources
from gpuinstall.units import readable
from gpuinstall.vendors import rules_for
from gpuinstall.words import machine_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.catalog import Build
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.machine import Machine

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "code.md"
DRIVER = "580.95.05"
CARDS = ("GTX 1080", "V100", "RTX 2080 Ti", "RTX 3090", "H100", "RTX 5090")
PROGRAMS = (
    "vllm",
    "lmdeploy",
    "sglang-kernel",
    "bitsandbytes",
    "xformers",
    "nvidia-dali-cuda120",
    "auto-gptq",
    "onnxruntime-gpu",
    "xgboost",
    "faiss-gpu-cu12",
    "flash-attn",
    "mamba-ssm",
)
INTRODUCTION = f"""# Code beside torch

For six cards with driver {DRIVER} on Linux x86_64: the torch that fits, and whether the newest release of a program on
the default index has code for the card, as its own wheel says, read in parts. torch's fit alone says
`yes` to all of them. What is done about a `no` is the lock's: another build of torch, an older release, or a refusal
([learned.md](../learned.md)). Made by `python -m tools.code_table`.
"""


@dataclass(frozen=True)
class Card:
    """A card, and the build of torch that is chosen for it alone."""

    name: str
    machine: Machine
    build: Build

    @classmethod
    def named(cls, name: str) -> Card:
        """Choose torch for a card."""
        machine = machine_in_words((name,), DRIVER)
        choice = choose(machine, Request(), load_catalog()).choice
        if choice is None:
            raise ValueError(f"no build of torch serves a {name}")
        return cls(name, machine, choice.build)

    def against(self, row: LearnedRow) -> str | None:
        """Say why a program does not run on it."""
        rules = rules_for(self.machine, load_catalog())
        return misfit(row, self.build, [(rules, gpu) for gpu in self.machine.gpus])


def read(program: str, card: Card, reader: Reader) -> LearnedRow | None:
    """Read a program as it runs beside the card's torch; None where it has no wheel."""
    try:
        (row,) = learn(program, Place("linux", "x86_64", card.build.backend), load_catalog(), reader)
    except InstallationError as error:
        if error.code != "no-wheel":
            raise
        return None
    return row


def table(rows: Iterable[tuple[str, list[LearnedRow | None]]], cards: list[Card]) -> Iterator[str]:
    """Write a line for each program, and below them why those differ that do."""
    yield f"| program | {' | '.join(card.name for card in cards)} |\n|{'---|' * (len(cards) + 1)}"
    yield f"| torch alone | {' | '.join(card.build.name for card in cards)} |"
    differing: list[str] = []
    cost: list[LearnedRow] = []
    for program, found in rows:
        answers = [card.against(row) if row else None for card, row in zip(cards, found, strict=True)]
        yield f"| {_named(program, found)} | {' | '.join(map(_said, found, answers))} |"
        pairs = zip(cards, answers, strict=True)
        differing += [f"- {card.name}: {_named(program, found)} {why}" for card, why in pairs if why]
        cost += dict.fromkeys(row for row in found if row)
    yield f"\n{len(differing)} answers differ from torch's:\n"
    yield from differing
    parts, whole = sum(row.bytes for row in cost), sum({row.file: row.size for row in cost}.values())
    requests = sum(row.requests for row in cost)
    yield f"\nRead: {readable(parts)} in {requests} requests, of wheels of {readable(whole)}, on {cost[-1].day}."


def _named(program: str, found: Iterable[LearnedRow | None]) -> str:
    return " ".join((program, *dict.fromkeys(row.version for row in found if row)))


def _said(row: LearnedRow | None, why: str | None) -> str:
    if row is None:
        return "built here"
    return "**no**" if why else "yes" if row.architectures else "none found"


def main() -> None:
    """Make the page."""
    cards = [Card.named(name) for name in CARDS]
    sources = read_sources(None, os.environ, Path.cwd())
    with open_session(sources, SilentReporter()) as session:
        sources = replace(sources, default_index=session.default_index)
        reader = Reader(sources, session.client, learned_store(), SilentReporter())
        rows = []
        for program in PROGRAMS:
            rows.append((program, [read(program, card, reader) for card in cards]))
            sys.stderr.write(f"{program}\n")
    PAGE.write_text(f"{INTRODUCTION}\n" + "\n".join(table(rows, cards)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
