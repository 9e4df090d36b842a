"""Tests of gpuinstall.environments.running."""

import time

from gpuinstall.environments.running import read_restart_time


def test_restart_time_is_known_without_a_boot_clock(monkeypatch):
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert 0 < read_restart_time("another boot") < time.time_ns()
