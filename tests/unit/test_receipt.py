from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from gpuinstall.proof_record import KEPT_RECORDS, ProofRecord
from gpuinstall.receipt import KEPT_RECEIPTS, Receipt

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which machine this is")
def test_only_receipts_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "gpuinstall" / "runs"
    folder.mkdir(parents=True)
    for second, name in enumerate(["notes", *(f"{number:08x}" for number in range(KEPT_RECEIPTS + 5))]):
        (folder / name).touch()
        os.utime(folder / name, (second, second))
    receipt = Receipt("")
    receipt.since = 2**80  # nothing has changed just now
    receipt.keep(str(tmp_path), [], is_script=False)
    names = {path.name for path in folder.iterdir()}
    assert len(names) == KEPT_RECEIPTS + 1
    assert {"notes", os.path.basename(receipt.file)} <= names  # noqa: PTH119


def test_only_records_of_proofs_are_removed(tmp_path: Path) -> None:
    for second, name in enumerate(["mine", *(f"id-{number:016x}" for number in range(KEPT_RECORDS + 5))]):
        (tmp_path / f"{name}.json").touch()
        os.utime(tmp_path / f"{name}.json", (second, second))
    record = ProofRecord(machine="", python="", packages={}, programs={}, files={}, startup={}, verdict={})
    record.write(tmp_path / f"new-{0:016x}.json")
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == KEPT_RECORDS + 1
    assert {"mine.json", f"new-{0:016x}.json"} <= names
