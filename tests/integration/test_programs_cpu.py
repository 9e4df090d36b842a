"""Real programs of the default index on the CPU: installed, locked, and the lock installed by plain uv and pip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tools.cpu_programs import PROGRAMS, prove

from tests.frozen import GPUINSTALL

pytestmark = [pytest.mark.network, pytest.mark.heavy]


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not any(Path(os.environ.get("PIP_FIND_LINKS", "")).glob("torch-2.13.0+cpu-cp311-*linux*_x86_64.whl")):
        pytest.skip("no wheel of torch 2.13.0+cpu in PIP_FIND_LINKS")
    return tmp_path_factory.mktemp("caches")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs_however_its_lock_is_installed(program: str, caches: Path, tmp_path: Path) -> None:
    found = prove(program, tmp_path, caches, GPUINSTALL)
    assert found.runs, found
    assert found.torch == "2.13.0+cpu"
