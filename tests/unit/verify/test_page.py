from __future__ import annotations

from pathlib import Path

from tools.checks import checks_page

PAGE = Path(__file__).parents[3] / "docs" / "checks.md"


def test_the_page_about_the_checks_is_not_stale() -> None:
    assert PAGE.read_text(encoding="utf-8") == checks_page(), "make docs writes it anew"


def test_every_check_on_the_page_says_what_it_shows() -> None:
    rows = [line.split("|") for line in checks_page().splitlines() if line.startswith("| ")]
    described = {row[1].strip(): row[3].strip() for row in rows}
    assert {"matmul-float16", "attention-flash", "all-reduce", "resnet50-tf32"} <= set(described)
    assert all(text for text in described.values())
