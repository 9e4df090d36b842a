"""A real torch in a real environment, broken as people, disks and other programs break it, and repaired."""

import os

import pytest

from gpuinstall.diagnose.evidence import read_contents
from gpuinstall.diagnose.repair import repair_steps
from gpuinstall.sources import read_sources
from tests.lab.broken import BROKEN, broken, examine_clone, examined
from tests.lab.environments import cpu_torch
from tests.unit.diagnose.evidence import found

OF_CPU = [breakage for breakage in BROKEN if not breakage.cuda]
SEVERAL = [BROKEN[number] for number in (0, 1, 10, 11, 16, 23, 24)]


@pytest.fixture(scope="session")
def torch(tmp_path_factory, request):
    return cpu_torch(tmp_path_factory, offline="not network" in request.config.getoption("-m"))


@pytest.mark.parametrize("breakage", SEVERAL, ids=lambda breakage: str(breakage.what))
def test_what_is_broken_blocks_and_is_repaired_in_this_environment(
    breakage, torch, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    sources = read_sources(None, os.environ, tmp_path)
    with broken(breakage, torch, tmp_path) as clone:
        findings = examine_clone(tmp_path, clone, sources).findings
        assert findings[0].blocking
        assert repair_steps(findings, clone)


def test_nothing_is_wrong_with_the_files_of_a_sound_environment(torch):
    assert found(venv=torch, contents=read_contents(torch)) == []


@pytest.mark.heavy
@pytest.mark.network
@pytest.mark.parametrize("breakage", OF_CPU, ids=lambda breakage: str(breakage.what))
def test_a_broken_environment_is_recognised_and_repaired(breakage, torch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = examined(breakage, torch, tmp_path, read_sources(None, os.environ, tmp_path))
    assert row.doctor != "healthy"
    assert row.steps
    assert row.after == "healthy"
