"""Real programs of the default index on the CPU: installed, locked, and the lock installed by plain uv and pip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tools.cpu_programs import EXTENSIONS, compile_extension, prove

from tests.frozen import GPUINSTALL

pytestmark = [pytest.mark.network, pytest.mark.heavy]


@pytest.fixture(autouse=True)
def torch() -> None:
    """Skip where there is no real torch."""
    if not any(
        Path(os.environ.get("PIP_FIND_LINKS", "")).glob("torch-2.13.0+cpu-cp311-*linux*_x86_64.whl")
    ):
        pytest.skip("no wheel of torch 2.13.0+cpu in PIP_FIND_LINKS")


@pytest.mark.parametrize("name", EXTENSIONS)
def test_an_extension_is_compiled_once_and_computes_what_torch_does(
    tmp_path: Path, name: str
) -> None:
    compiled = compile_extension(name, tmp_path, GPUINSTALL)
    assert compiled.status == "passed"
    assert compiled.kept == (name == "torch-scatter")  # deepspeed's wheel has no compiled code


def test_programs_run_however_their_lock_is_installed(tmp_path: Path) -> None:
    found = prove(tmp_path, GPUINSTALL)
    assert [program for program, one in found.items() if not one.runs] == []
    assert len(found) >= 5
