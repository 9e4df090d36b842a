"""Makes ``docs/evidence/kinds.md``: of each newer failure a message, a healthy text beside it, and the fix.

``python -m tools.kinds`` asks ``explain`` for the answers; test_table.py of tests/unit/failures holds both.
"""

from __future__ import annotations

from pathlib import Path

import tomli

from gpuinstall.failures.classify import RecognisedCause, classify
from gpuinstall.failures.table import Failure, load_failures

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "evidence" / "kinds.md"
FIRST = 122
"""The first entry that was added after public texts were scored."""
HEAD = """# The newer failures

What `gpuinstall explain` answers to a message of each failure from F122 on, how sure it is, the first fix, and its
answer to a healthy text beside it. Made by `python -m tools.kinds`.

| failure | message | answer | fix | healthy text | answer |
|---|---|---|---|---|---|
"""


def main() -> None:
    """Ask about each and write the page."""
    healthy = tomli.loads((ROOT / "tests" / "data" / "logs" / "counterparts.toml").read_text(encoding="utf-8"))
    entries = [failure for name, failure in load_failures().items() if int(name[1:]) >= FIRST]
    PAGE.write_text(HEAD + "".join(f"{row(failure, healthy[failure.id])}\n" for failure in entries), encoding="utf-8")


def row(failure: Failure, healthy: str) -> str:
    """One line of the table; of several messages the first that names the failure."""
    answers = [(text, classify(text)) for text in failure.messages]
    text, causes = next(((text, found) for text, found in answers if found and found[0].id == failure.id), answers[0])
    fix = causes[0].fix[0] if causes else ""
    cells = (f"{failure.id} {failure.title}", code(text), answer(causes), code(fix), code(healthy))
    return f"| {' | '.join(cells)} | {answer(classify(healthy))} |"


def answer(causes: tuple[RecognisedCause, ...]) -> str:
    """The first cause with how sure it is."""
    return f"{causes[0].id}, {causes[0].confidence:.2f}" if causes else "none"


def code(text: str) -> str:
    """A text in one cell, as it is."""
    line = " ".join(text.split()).replace("|", "\\|")
    return f"`{line}`" if "`" not in line else f"`` {line} ``"


if __name__ == "__main__":
    main()
