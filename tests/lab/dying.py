"""``python -m tests.lab.dying N …`` runs gpuinstall and kills it at the Nth line of what builds and swaps."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall import files, install
from gpuinstall.cli.main import run

if TYPE_CHECKING:
    from types import FrameType

ROOM = {str(path) for path in Path(install.__path__[0]).glob("*.py")} | {files.__file__}


class Countdown:
    """A trace function that counts the lines of the room."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.seen = 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Countdown | None:
        """Follow the functions of the room alone."""
        if frame.f_code.co_filename not in ROOM or frame.f_code.co_name.startswith("<"):
            return None
        if event == "line":
            self.seen += 1
            if self.seen == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


if __name__ == "__main__":
    countdown = Countdown(int(sys.argv[1]))
    sys.settrace(countdown)
    status = run(sys.argv[2:])
    sys.settrace(None)
    sys.stderr.write(f"lines: {countdown.seen}")
    sys.exit(status)
