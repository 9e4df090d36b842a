"""Skip tests that need root, and summarize all skipped tests."""

import os
from collections import Counter

import pytest

needs_signals = pytest.mark.skipif(os.name == "nt", reason="Windows has no signals")
needs_sh = pytest.mark.skipif(os.name == "nt", reason="Windows runs no shell script")
needs_pipes = pytest.mark.skipif(os.name == "nt", reason="requires named pipes")
needs_venv = pytest.mark.skipif(
    os.name == "nt", reason="the embeddable Python has no venv"
)
needs_links = pytest.mark.skipif(
    os.name == "nt", reason="links require a privilege on Windows"
)
needs_posix = pytest.mark.skipif(
    os.name == "nt", reason="tests paths or modes of POSIX"
)


def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Skip tests marked ``root`` for an ordinary user."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter):
    """Print how many tests were skipped for each reason."""
    reasons = Counter(
        _reason(report) for report in terminalreporter.stats.get("skipped", ())
    )
    if not reasons:
        return
    terminalreporter.section(f"{reasons.total()} skipped")
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count:4} {reason}")


def _reason(report: pytest.TestReport) -> str:
    """Return the reason of a skipped test, without the file and line."""
    assert isinstance(report.longrepr, tuple)
    return report.longrepr[2].removeprefix("Skipped: ")
