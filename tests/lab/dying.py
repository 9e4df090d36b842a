"""``python -m tests.lab.dying N SIGNAL …`` runs gpuinstall and signals it at the Nth line of what builds and swaps."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType

from gpuinstall.base import files
from gpuinstall.base.interruption import install_handlers
from gpuinstall.cli.main import run_command_line
from tests.frozen import freeze

ROOM = {
    str(path) for path in (Path(files.__file__).parents[1] / "install").glob("*.py")
} | {files.__file__}


class Countdown:
    """A trace function that counts the lines of the room."""

    def __init__(self, last: int, number: int):
        self.last, self.number = last, number
        self.seen = 0

    def __call__(
        self, frame: FrameType, event: str, _argument: object
    ) -> Countdown | None:
        """Follow the functions of the room alone."""
        if frame.f_code.co_filename not in ROOM or frame.f_code.co_name.startswith("<"):
            return None
        if event == "line":
            self.seen += 1
            if self.seen == self.last:
                os.kill(os.getpid(), self.number)
        return self


if __name__ == "__main__":
    countdown = Countdown(int(sys.argv[1]), int(sys.argv[2]))
    install_handlers()
    freeze()
    sys.settrace(countdown)
    status = run_command_line(sys.argv[3:])
    sys.settrace(None)
    sys.stderr.write(f"lines: {countdown.seen}")
    sys.exit(status)
