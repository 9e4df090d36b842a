"""Repetition of an installation if another tool changes the environment."""

from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest.mock import Mock

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.install import install
from gpuinstall.install.install import (
    ConcurrentChangeError,
    InstallResult,
)
from gpuinstall.install.state import Action, InstallOptions


@pytest.fixture
def settled(monkeypatch):
    """Return the seconds of a repeated installation, and the re-reads."""
    clock = count()
    monkeypatch.setattr(install, "monotonic", lambda: float(next(clock)))
    project: Any = Mock()
    place: Any = None
    result = InstallResult(paths=place, python=place, fit=place, action=Action.BUILD)
    for step in (
        "_select",
        "plan_installation",
        "_announce",
        "_fetch",
        "_verify_before_change",
    ):
        monkeypatch.setattr(install, step, Mock())
    for step in ("_is_lock_new", "_verify"):
        monkeypatch.setattr(install, step, Mock(return_value=False))
    monkeypatch.setattr(install, "_create_result", lambda *_: result)
    state = None, project
    monkeypatch.setattr(install, "lock_state", contextmanager(lambda *_: (yield state)))
    reread = Mock(return_value=project)
    monkeypatch.setattr(install, "reread_project", reread)

    def settle(changes):
        left = [ConcurrentChangeError] * changes

        @contextmanager
        def applied(*_):
            next(clock)
            if left:
                raise left.pop()
            yield

        monkeypatch.setattr(install, "_apply_change", applied)
        done = install.install(project, InstallOptions())
        return done.seconds, reread.call_count

    return settle


def test_reported_install_duration_includes_all_attempts(settled):
    assert settled(2) == (4.0, 2)


def test_installation_is_repeated_at_most_twice(settled):
    with pytest.raises(InstallationError, match="keeps changing"):
        settled(3)
