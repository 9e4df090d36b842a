"""The folders that an installation writes to, for users and in places that have hardly any."""

import os
import subprocess
import sys

from gpuinstall.machine.host import read_folders
from gpuinstall.machine.source import Source


def test_the_nearest_folder_that_is_there_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "not" / "yet"))
    found = read_folders(Source())
    assert found.keys() == {"environment", "cache", "temporary", "shared-memory", "kernel-cache"}
    assert found["cache"].writable
    assert found["cache"].free > 0


def test_a_working_folder_that_is_gone_is_no_fault(tmp_path):
    (tmp_path / "gone").mkdir()
    code = """
import os
from gpuinstall.machine.host import read_folders
from gpuinstall.machine.source import Source
os.rmdir(os.getcwd())
print(len(read_folders(Source())))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path / "gone", env=os.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "5\n"
