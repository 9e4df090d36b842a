from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

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
