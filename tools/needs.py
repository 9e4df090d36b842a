"""Makes the tables of ``docs/evidence/needs.md``: ``python -m tools.needs`` writes them into the page.

One has what tools decide that were told what a lock needs, one which wordings of offers and nodes are read.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.wordings import wordings
from tests.unit.export.judgement import (
    HEALTH,
    PROPERTY_OF,
    Judgement,
    judgements,
    locks,
    recorded_machines,
)

from gpuinstall.export.tools import MACHINE_TOOLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PAGE = Path(__file__).resolve().parent.parent / "docs" / "evidence" / "needs.md"
ORIGINS = {"runpod": "RunPod", "vast": "vast.ai", "lambda": "Lambda", "labels": "a node's labels"}


def decisions(judged: Iterable[Judgement]) -> str:
    """Return the table of what each tool decides, against the plan."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for judgement in judged:
        counts[judgement.tool][_kind(judgement)] += 1
    lines = [
        "| tool | decides as `plan` | let in: a fault of the machine | let in: no word for it | kept out although it runs |",
        "|---|---|---|---|---|",
    ]
    for tool in MACHINE_TOOLS:
        count = counts[tool.name]
        right, faults, kept_out = (count.pop(kind, 0) for kind in ("right", "fault", "kept out"))
        total = right + faults + kept_out + count.total()
        unsaid = "; ".join(f"{number}: {kind}" for kind, number in sorted(count.items())) or "0"
        lines.append(f"| {tool.title} | {right} of {total} | {faults} | {unsaid} | {kept_out} |")
    return "".join(f"{line}\n" for line in lines)


def _kind(judgement: Judgement) -> str:
    if judgement.is_let_in == (judgement.refusal is None):
        return "right"
    if not judgement.is_let_in:
        return "kept out"
    if judgement.refusal in HEALTH:
        return "fault"
    if judgement.is_sayable:
        return "WRONG"
    return PROPERTY_OF[str(judgement.refusal)].value


def offers() -> str:
    """Return the table of the wordings that are read, and the sentences of the others."""
    read: Counter[str] = Counter()
    total: Counter[str] = Counter()
    refused: dict[str, Counter[str]] = defaultdict(Counter)
    for wording in wordings():
        total[wording.origin] += 1
        _, sentence = wording.outcome()
        if sentence:
            refused[wording.origin][sentence] += 1
        else:
            read[wording.origin] += 1
    lines = ["| of | read | refused |", "|---|---|---|"]
    for origin, title in ORIGINS.items():
        sentences = [f"{count}: {sentence}" for sentence, count in refused[origin].items()]
        lines.append(f"| {title} | {read[origin]} of {total[origin]} | {'<br>'.join(sentences)} |")
    return "".join(f"{line}\n" for line in lines)


def page_with(tables: Mapping[str, str]) -> str:
    """Return the page with tables in the places that its comments name."""
    place = re.compile(r"(?P<head><!-- (?P<name>\w+), made by tools\.needs -->\n\n)(?:\|.*\n)*")
    page = PAGE.read_text("utf-8")
    return place.sub(lambda found: found["head"] + tables[found["name"]], page)


if __name__ == "__main__":
    decided = decisions(judgements(recorded_machines(), locks()))
    PAGE.write_text(page_with({"decisions": decided, "offers": offers()}), encoding="utf-8")
