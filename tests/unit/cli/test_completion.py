from __future__ import annotations

import os
import sys

import pytest

from gpuinstall import process


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_one_variable_away(shell: str) -> None:
    done = process.run(
        [sys.executable, "-m", "gpuinstall"], env={**os.environ, "_GPUINSTALL_COMPLETE": f"{shell}_source"}
    )
    assert (done.status, done.err) == (0, "")
    assert "_GPUINSTALL_COMPLETE" in done.out


def test_it_knows_the_commands() -> None:
    asked = {"_GPUINSTALL_COMPLETE": "bash_complete", "COMP_WORDS": "gpuinstall export re", "COMP_CWORD": "2"}
    done = process.run([sys.executable, "-m", "gpuinstall"], env={**os.environ, **asked})
    assert done.out.split() == ["plain,requirements"]
