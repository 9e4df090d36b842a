"""Damaged documents, for a moment each; ``make torture`` takes minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.torture.place import Place
from tests.torture.readers import readers

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 0.2


def test_every_reader_takes_a_damaged_document_or_says_why_not(tmp_path: Path) -> None:
    assert [case.fault for case in readers(Place(tmp_path), SECONDS) if case.fault] == []
