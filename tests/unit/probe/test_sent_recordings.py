"""A recording that somebody sent becomes a case by one command, unless it holds something private."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from tools import recording

from tests.unit.probe.test_machines import MACHINES

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shutil.copytree(MACHINES / "b200-driver-610", tmp_path / "sent")
    (folder / "machine.json").unlink()
    (folder / "SOURCE").unlink()
    monkeypatch.setattr(recording, "MACHINES", tmp_path / "machines")
    monkeypatch.setattr(sys, "argv", ["recording", str(folder), "a-card"])
    return folder


@pytest.mark.usefixtures("sent")
def test_it_becomes_a_case_that_the_tests_read(tmp_path: Path) -> None:
    recording.main()

    case = tmp_path / "machines" / "a-card"
    expected = json.loads(
        (MACHINES / "b200-driver-610" / "machine.json").read_text(encoding="utf-8")
    )
    assert json.loads((case / "machine.json").read_text(encoding="utf-8")) == expected
    assert (case / "SOURCE").read_text(encoding="utf-8").startswith("Recorded by gpuinstall")


@pytest.mark.parametrize("text", ["/home/ann/cuda", "ann@example.org", "00:1a:2b:3c:4d:5e"])
def test_what_is_private_is_named_and_nothing_is_copied(
    sent: Path, tmp_path: Path, text: str
) -> None:
    (sent / "os-release.txt").write_text(text, encoding="utf-8")

    with pytest.raises(SystemExit, match=r"os-release\.txt: "):
        recording.main()
    assert not (tmp_path / "machines").exists()
