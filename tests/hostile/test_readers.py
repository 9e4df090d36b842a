"""Damaged documents, for a moment each; ``make torture`` takes minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.torture.readers import fuzzed, known_readers

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 0.2


def test_every_reader_takes_a_damaged_document_or_says_why_not(tmp_path: Path) -> None:
    cases = [fuzzed(tmp_path, SECONDS, name) for name in known_readers(tmp_path)]
    assert [case.fault for case in cases if case.fault] == []
