"""An environment of others is what its interpreter reports, whatever else starts with that and prints."""

import subprocess
import sys

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.install.foreign import inspect_foreign


@pytest.fixture
def venv(tmp_path):
    command = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")]
    subprocess.run(command, check=True)
    return tmp_path / "venv"


def starting(venv, line):
    """Have the Python of an environment run a line at its start."""
    [site] = venv.glob("lib/python*/site-packages")
    (site / "noise.pth").write_text(f"import sys; {line}\n", "utf-8")


def test_what_a_startup_file_prints_is_not_its_answer(venv):
    starting(venv, "print('{}')")
    assert inspect_foreign(venv / "bin" / "python").venv == venv


def test_one_that_does_not_start_is_named_with_why(venv, monkeypatch):
    starting(venv, "import os; os.write(2, b'no licence'); os._exit(3)")
    with pytest.raises(UsageError) as ended:
        inspect_foreign(venv / "bin" / "python")
    assert (ended.value.code, ended.value.why) == ("python-unusable", "no licence")
    monkeypatch.setattr("gpuinstall.base.patience.Patience.look", 0.5)
    starting(venv, "import time; time.sleep(60)")
    with pytest.raises(UsageError) as hung:
        inspect_foreign(venv / "bin" / "python")
    assert hung.value.why == "not finished after 0 s"
