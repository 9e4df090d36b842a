"""Run gpuinstall with a failing system call.

``python -m tests.lab.failing CALL N …`` makes the Nth system call CALL of the run fail.
"""

import errno
import fcntl
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from gpuinstall.base.interruption import install_handlers
from gpuinstall.cli.main import run_command_line
from tests.frozen import freeze

PLACES: dict[str, tuple[tuple[Any, str], ...]] = {
    "rename": ((os, "rename"), (os, "replace")),
    "fsync": ((os, "fsync"),),
    "flock": ((fcntl, "flock"),),
    "mkdir": ((os, "mkdir"),),
    "unlink": ((os, "unlink"), (os, "remove"), (os, "rmdir")),
}
"""The Python functions that make each system call."""


@dataclass
class Countdown:
    """A counter of system calls, of which the last one fails."""

    last: int
    seen: int = 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function to count its calls."""

        @wraps(call)
        def counted(*arguments: Any, **options: Any) -> Any:
            self.seen += 1
            if self.seen == self.last:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments, **options)

        return counted


def main() -> int:
    """Run the command, and write the number of its system calls."""
    name, last, *arguments = sys.argv[1:]
    countdown = Countdown(int(last))
    install_handlers()
    freeze()
    for module, function in PLACES[name]:
        call = getattr(module, function)
        setattr(module, function, countdown.around(call))
    status = run_command_line(arguments)
    sys.stderr.write(f"calls: {countdown.seen}")
    return status


if __name__ == "__main__":
    sys.exit(main())
