"""``make card``, rehearsed: the machine that the first run is expected on, its driver and its torch played."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from tools import card

from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.environments import small_torch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.fixtures import Play

H200 = FakeGpu("NVIDIA H200", cc="9.0", memory_mib=143771, pci="10de:2335")
MACHINE = FakeDriver((H200,), driver="580.159.03", cuda=13000)


@pytest.mark.heavy
def test_every_step_is_taken_and_stands_on_the_page(
    tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(MACHINE)
    small_torch(tmp_path / "image", "cu130", "2.11.0")
    monkeypatch.setattr(card, "FOLDER", tmp_path / "card")
    monkeypatch.setattr(card, "EVIDENCE", tmp_path / "card" / "evidence")
    monkeypatch.setattr(sys, "argv", ["card", str(tmp_path / "image" / "bin" / "python")])

    with pytest.raises(SystemExit) as end:
        card.main()
    page = (tmp_path / "card" / "evidence" / "card.md").read_text(encoding="utf-8")
    probe = json.loads((tmp_path / "card" / "evidence" / "00-probe.json").read_text(encoding="utf-8"))

    assert end.value.code == 0, page
    assert probe["data"]["driver"]["version"] == "580.159.03"
    assert "verify](06-verify.json) | 0 |" in page
    assert "no virtual environment" not in page
