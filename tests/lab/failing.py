"""``python -m tests.lab.failing CALL N …`` runs gpuinstall, and lets the Nth of its calls of the system's CALL fail."""

from __future__ import annotations

import errno
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuinstall.cli.main import run_command_line
from gpuinstall.install import swap
from gpuinstall.interruption import install_handlers
from tests.frozen import freeze

if TYPE_CHECKING:
    from collections.abc import Callable

PLACES: dict[str, tuple[tuple[Any, str], ...]] = {
    "rename": ((os, "rename"), (os, "replace"), (swap, "exchange")),
    "fsync": ((os, "fsync"),),
    "flock": (),
    "mkdir": ((os, "mkdir"),),
    "unlink": ((os, "unlink"), (os, "remove"), (os, "rmdir")),
}
"""Where each call is made; that of a lock is the one of the library that locks."""


class Countdown:
    """Counts calls, and fails at the last one."""

    def __init__(self, last: int) -> None:
        self.last, self.seen = last, 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        return partial(self._call, call)

    def _call(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.seen += 1
        if self.seen == self.last:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return call(*arguments, **options)


def main() -> int:
    """Run, and say how many calls there were."""
    import fcntl

    countdown = Countdown(int(sys.argv[2]))
    install_handlers()
    freeze()
    for module, name in PLACES[sys.argv[1]] or ((fcntl, "flock"),):
        setattr(module, name, countdown.around(getattr(module, name)))
    status = run_command_line(sys.argv[3:])
    sys.stderr.write(f"calls: {countdown.seen}")
    return status


if __name__ == "__main__":
    sys.exit(main())
