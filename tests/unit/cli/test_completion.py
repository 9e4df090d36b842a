import os
import sys

import pytest

from gpuinstall.base import process


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_script_is_printed_for_a_shell(shell):
    variable = {"_GPUINSTALL_COMPLETE": f"{shell}_source"}
    done = process.run(
        [sys.executable, "-m", "gpuinstall"], env={**os.environ, **variable}
    )
    assert done.status == 0, done.err
    assert f"{shell}_complete" in done.out
