"""Daily life in one folder: nothing that was asked for is lost, nothing changes that is not said."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tools.journeys import PAGE, page, rows

from gpuinstall.facts.pythons import find_python
from tests.lab.journeys import FIRST, OTHER

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.heavy
@pytest.mark.skipif(
    shutil.which("cc") is None, reason="no C compiler (cc) to build the fake NVIDIA libraries"
)
@pytest.mark.skipif(
    not (find_python(FIRST) and find_python(OTHER)), reason=f"no Python {FIRST} and {OTHER} here"
)
def test_every_journey_ends_as_its_page_says(tmp_path: Path) -> None:
    assert page(rows(tmp_path)) == PAGE.read_text(encoding="utf-8"), (
        "python -m tools.journeys writes the page again"
    )
