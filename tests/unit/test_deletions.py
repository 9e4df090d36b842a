"""The table of what is deleted, in ``docs/trust.md``: each module that deletes, each with tests that exist."""

from __future__ import annotations

import re

from tests.lab.clone import ROOT
from tests.lab.deletions import deleting_modules

_ROW = re.compile(
    r"^\| `(?P<module>[\w/.]+\.py)` \|.*\| `(?P<test>[\w/]+\.py::\w+)` \|$", re.MULTILINE
)


def rows() -> list[re.Match[str]]:
    page = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    return list(_ROW.finditer(page.partition("## What is deleted")[2]))


def test_every_module_that_deletes_is_in_the_table() -> None:
    assert {row["module"] for row in rows()} == deleting_modules()


def test_the_tests_of_the_table_exist() -> None:
    missing = []
    for row in rows():
        file, name = row["test"].split("::")
        if f"def {name}(" not in (ROOT / "tests" / file).read_text(encoding="utf-8"):
            missing.append(row["test"])
    assert missing == []
