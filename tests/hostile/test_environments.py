"""An environment that came with a folder passes for none of ours, whatever it says of itself."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.lab.driver import FakeDriver
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.fixtures import Play
    from tests.lab.index import StandInIndex

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="scripts in the place of programs, as Unix has them")


@pytest.fixture
def cloned(stand_in: StandInIndex, tmp_path: Path, play: Play) -> Workshop:
    """A folder with an environment that another user has made and proven, whose Python shows that it ran."""
    play(FakeDriver(nvml_missing=True, cu_missing=True))
    (tmp_path / "project").mkdir()
    author = Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())
    author.document("install", "torch==2.14.1")
    author.document("install", "torch==2.13.0")
    python = author.folder / ".venv" / "bin" / "python"
    python.unlink()
    python.write_text(f'#!/bin/sh\n: > {tmp_path / "executed"}\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return replace(author, variables={**author.variables, "XDG_STATE_HOME": str(tmp_path / "mine")})


@pytest.fixture
def victim(cloned: Workshop, tmp_path: Path) -> Workshop:
    return replace(cloned, caches=tmp_path / "the victims")


def test_a_proven_environment_of_a_stranger_is_built_anew_and_not_run(victim: Workshop, tmp_path: Path) -> None:
    for words in (("probe",), ("plan",), ("install", "--dry-run"), ("env", "list")):
        victim.document(*words)
    refused = victim.document("install", "--rollback", exit_code=2)["errors"][0]
    assert refused["code"] == "not-made-here"
    done = victim.run("install")
    assert done.status == 0, done.err
    assert ".venv was not made on this machine" in done.err
    assert not (tmp_path / "executed").exists()
    assert "was not made on this machine" not in victim.run("install").err


def test_who_verifies_or_diagnoses_such_an_environment_is_told_that_it_is_run(victim: Workshop) -> None:
    run = ("run", "python", "--version")
    for words in (("verify",), ("doctor",), run, run):
        assert "in an environment that gpuinstall did not make on this machine" in victim.run(*words).err
