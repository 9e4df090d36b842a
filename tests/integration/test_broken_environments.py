"""A real torch in a real environment, broken as people, disks and other programs break it, and repaired."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuinstall.diagnose.evidence import read_contents
from gpuinstall.diagnose.repair import read_repair
from gpuinstall.sources import read_sources
from tests.frozen import frozen_catalog
from tests.lab.broken import BROKEN, broken, examined
from tests.lab.environments import cpu_torch
from tests.unit.diagnose.evidence import found

OF_CPU = [breakage for breakage in BROKEN if not breakage.cuda]
SEEN_IN_FILES = [BROKEN[number] for number in (0, 1, 10, 11, 16, 24)]


@pytest.fixture(scope="session")
def torch(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    return cpu_torch(tmp_path_factory, offline="not network" in request.config.getoption("-m"))


@pytest.mark.parametrize("breakage", SEEN_IN_FILES, ids=lambda breakage: str(breakage.what))
def test_the_files_alone_show_what_is_broken(breakage, torch, tmp_path):
    sources = read_sources(None, os.environ, tmp_path)
    with broken(breakage, torch, tmp_path) as clone:
        contents = read_contents(clone)
        repair = read_repair(clone, contents.version("torch"), sources, frozen_catalog().family)
        (finding,) = found(venv=clone, contents=contents, repair=repair)
        assert finding.blocking
        assert finding.fixes


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


def test_there_are_thirty_broken_environments_and_more():
    assert len(BROKEN) >= 30
    assert len({breakage.what for breakage in BROKEN}) == len(BROKEN)
