"""Tests of unmanaged environments with broken interpreters."""

import subprocess
import sys

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.install.unmanaged import inspect_unmanaged


@pytest.fixture
def starting(tmp_path):
    """Return a function that adds a startup line to an interpreter."""
    venv = tmp_path / "venv"
    command = [sys.executable, "-m", "venv", "--without-pip", venv]
    subprocess.run(command, check=True)

    def start(line):
        [site] = venv.glob("lib/python*/site-packages")
        (site / "noise.pth").write_text(f"import sys; {line}\n", "utf-8")
        return venv / "bin" / "python"

    return start


def test_output_of_a_startup_file_is_ignored(starting, tmp_path):
    assert inspect_unmanaged(starting("print('{}')")).venv == tmp_path / "venv"


def test_interpreter_that_fails_is_reported_with_the_reason(starting, monkeypatch):
    monkeypatch.setattr("gpuinstall.base.timeouts.Timeouts.interpreter_query", 0.5)
    for line, why in (
        (
            "import os; os.write(2, b'no license'); os._exit(3)",
            "exited with status 3: no license",
        ),
        ("import time; time.sleep(60)", "not finished after 0 s"),
    ):
        with pytest.raises(UsageError) as refused:
            inspect_unmanaged(starting(line))
        assert (refused.value.code, refused.value.why) == ("python-unusable", why)
