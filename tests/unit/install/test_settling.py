"""An installation begins anew if another tool has changed the environment meanwhile, and comes to an end."""

from itertools import count
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.install import install
from gpuinstall.install.install import (
    ChangedMeanwhileError,
    ChangeResult,
    until_settled,
)


@pytest.fixture
def settled(monkeypatch):
    """What comes of attempts of a second, the first of them disturbed, and how often the folder was read for it."""
    clock = count()
    monkeypatch.setattr(install, "monotonic", lambda: float(next(clock)))
    project: Any = Mock()

    def settle(changes):
        left = [ChangedMeanwhileError] * changes

        def attempt():
            next(clock)
            if left:
                raise left.pop()
            return ChangeResult(paths=EnvironmentPaths(Path()), fit=cast("Any", None))

        result = until_settled(project, attempt)
        return result.seconds, project.read_anew.call_count

    return settle


def test_the_seconds_are_those_of_all_attempts(settled):
    assert settled(2) == (4.0, 2)


def test_it_does_not_begin_anew_without_end(settled):
    with pytest.raises(InstallationError, match="keeps changing"):
        settled(3)
