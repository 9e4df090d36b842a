"""What each command says of odd machines, through the real command line: docs/evidence/cards.md has the same rows."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.lab.cards import answers, told
from tests.lab.environments import small_torch
from tests.lab.states import STATES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.root,
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("unshare") is None,
        reason="needs root and unshare to lay other files over /proc, /sys and /dev",
    ),
]


def test_each_command_says_of_each_state_what_is_right(tmp_path: Path, libraries: Path) -> None:
    small_torch(tmp_path / "env", "cu130")

    def said(name: str) -> dict[str, str]:
        folder = tmp_path / str(list(STATES).index(name))
        folder.mkdir()
        return told(answers(STATES[name].place, folder, libraries, tmp_path / "env"))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        shown = dict(zip(STATES, pool.map(said, STATES), strict=True))

    wrong = {
        name: (shown[name], state.says)
        for name, state in STATES.items()
        if shown[name] != state.says
    }
    assert wrong == {}
