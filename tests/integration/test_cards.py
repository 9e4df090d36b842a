"""What each command says of odd machines, through the real command line."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab.cards import answers, told
from tests.lab.environments import small_torch
from tests.lab.index import StandInIndex
from tests.lab.states import STATES
from tests.lab.workshop import Workshop

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.root,
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("unshare") is None,
        reason="needs root and unshare to lay other files over /proc, /sys and /dev",
    ),
]


def test_each_command_says_of_each_state_what_is_right(tmp_path, libraries, catalog_wheels):
    for torch in {state.place.torch for state in STATES.values()}:
        version, _, backend = torch.partition("+")
        small_torch(tmp_path / torch, backend, version)
    with StandInIndex(catalog_wheels) as served:
        workshop = Workshop(tmp_path / "project", tmp_path / "caches", served.environment())
        workshop.folder.mkdir()
        workshop.document("lock", "torch==2.10.0", "--target", "cu126", "--target", "cu130")
        for target in ("cu126", "cu130"):
            workshop.document("sync", "--target", target, "--venv", f".venv-{target}")

    def said(name):
        folder = tmp_path / str(list(STATES).index(name))
        folder.mkdir()
        place = STATES[name].place
        return told(answers(place, folder, libraries, tmp_path / place.torch, workshop))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        shown = dict(zip(STATES, pool.map(said, STATES), strict=True))

    wrong = {
        name: (shown[name], state.says)
        for name, state in STATES.items()
        if shown[name] != state.says
    }
    assert wrong == {}
