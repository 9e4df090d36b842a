"""An installation begins anew if another tool has changed the environment meanwhile, and comes to an end."""

from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.install import install
from gpuinstall.install.install import (
    ChangedMeanwhileError,
    ChangeResult,
    until_settled,
)


def settled(changes, monkeypatch):
    """What comes of attempts of a second, the first of them disturbed, and how often the folder was read for it."""
    clock = count()
    monkeypatch.setattr(install, "monotonic", lambda: float(next(clock)))
    readings: list[None] = []
    project = SimpleNamespace(read_anew=lambda: readings.append(None))
    disturbed = count()

    def attempt():
        next(clock)
        if next(disturbed) < changes:
            raise ChangedMeanwhileError
        return ChangeResult(paths=EnvironmentPaths(Path()), fit=cast("Any", None))

    return until_settled(cast("Any", project), attempt), len(readings)


def test_the_seconds_are_those_of_all_attempts(monkeypatch):
    result, readings = settled(2, monkeypatch)
    assert (result.seconds, readings) == (4.0, 2)


def test_it_does_not_begin_anew_without_end(monkeypatch):
    with pytest.raises(InstallationError, match="again and again"):
        settled(3, monkeypatch)
