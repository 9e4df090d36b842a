"""Real programs of the default index on the CPU: installed, locked, and the lock installed by plain uv and pip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tools.cpu_programs import prove

from tests.frozen import GPUINSTALL

pytestmark = [pytest.mark.network, pytest.mark.heavy]


def test_programs_run_however_their_lock_is_installed(tmp_path: Path) -> None:
    if not any(Path(os.environ.get("PIP_FIND_LINKS", "")).glob("torch-2.13.0+cpu-cp311-*linux*_x86_64.whl")):
        pytest.skip("no wheel of torch 2.13.0+cpu in PIP_FIND_LINKS")
    found = prove(tmp_path, GPUINSTALL)
    assert [program for program, one in found.items() if not one.runs] == []
    assert len(found) >= 5
