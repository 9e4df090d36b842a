"""``pytest --require-gpu``: fail tests that were skipped or ran on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest

USED = ("gpu", "used")
"""The user property of tests that ran on a GPU."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--require-gpu``."""
    text = "fail tests marked gpu_required that do not run on a GPU, and fail the run if no test does"
    parser.getgroup("gpuinstall").addoption(
        "--require-gpu", action="store_true", help=text
    )


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker, and register the hooks for --require-gpu."""
    config.addinivalue_line(
        "markers", "gpu_required: with --require-gpu, fails unless it runs on a GPU"
    )
    if config.getoption("--require-gpu"):
        config.pluginmanager.register(GpuRequirement())


def count_allocations() -> int:
    """Return the number of GPU memory allocations that torch has counted."""
    # pytest imports this plugin even without --require-gpu.
    from gpuinstall.base.vendors import BACKEND_ROWS

    torch = sys.modules.get("torch")
    # Some kinds, such as rocm, have no module of their own.
    devices = [getattr(torch, row.kind, None) for row in BACKEND_ROWS]
    running = [
        device
        for device in devices
        if device and device.is_available() and device.is_initialized()
    ]
    return sum(
        device.memory_stats(index).get("allocation.all.allocated", 0)
        for device in running
        for index in range(device.device_count())
    )


class GpuRequirement:
    """pytest hooks that fail tests and runs that used no GPU.

    GPU memory that other processes allocate is not counted.
    """

    def __init__(self) -> None:
        self.before = 0
        self.used = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Count GPU memory allocations before a test's fixtures run."""
        self.before = count_allocations()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
        item: pytest.Item,
        call: pytest.CallInfo[None],
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Fail a marked test that passed, or was skipped, without a GPU."""
        report = yield
        is_call = call.when == "call"
        is_green = (is_call or report.skipped) and not (
            report.failed or hasattr(report, "wasxfail")
        )
        if is_call and count_allocations() > self.before:
            report.user_properties.append(USED)
        elif is_green and item.get_closest_marker("gpu_required"):
            reason = "it was skipped" if report.skipped else "it ran only on the CPU"
            report.outcome = "failed"
            report.longrepr = f"gpu_required: {reason} ({item.nodeid})"
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record that a test used a GPU."""
        self.used |= USED in map(tuple, report.user_properties)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which no test used a GPU, except in xdist workers."""
        is_worker = hasattr(session.config, "workerinput")
        only_collects = session.config.getoption("collectonly")
        if self.used or is_worker or only_collects:
            return
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print(
                "\nerror: no test ran on a GPU, as --require-gpu requires; run gpuinstall doctor",
                file=sys.stderr,
            )
