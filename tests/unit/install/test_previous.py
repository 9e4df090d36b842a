"""Going back to the previous environment: only from one that is ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuinstall.environments.paths import EnvironmentPaths
from gpuinstall.environments.records import remember
from gpuinstall.errors import UsageError
from gpuinstall.install.previous import roll_back
from gpuinstall.reporter import SilentReporter
from tests.unit.install.environments import make_environment, name_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentPaths:
    """A previous environment that was made here, and nothing in its place."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    paths = EnvironmentPaths(tmp_path / ".venv")
    make_environment(paths.previous, "previous")
    remember(paths.venv, "previous")
    return paths


def test_what_gpuinstall_did_not_make_is_not_replaced(paths: EnvironmentPaths) -> None:
    paths.venv.mkdir()
    (paths.venv / "pyvenv.cfg").touch()

    with pytest.raises(UsageError) as raised:
        roll_back(paths, 0, SilentReporter())

    assert (raised.value.code, raised.value.hint) == (
        "not-ours",
        f"mv {paths.venv} {paths.venv}.other   # then the same again",
    )
    assert (paths.venv / "pyvenv.cfg").exists()
    assert name_of(paths.previous) == "previous"


def test_the_previous_comes_back_to_an_empty_place(paths: EnvironmentPaths) -> None:
    roll_back(paths, 0, SilentReporter())

    assert name_of(paths.venv) == "previous"
