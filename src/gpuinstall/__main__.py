"""``python -m gpuinstall`` and the console script."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line and exit with its status."""
    gc.set_threshold(100_000)  # a plan allocates and hardly frees: fewer collections make it a tenth faster
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a log in ASCII has no dot or times sign

    try:
        from gpuinstall.cli.main import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = INTERRUPTED
    if status == INTERRUPTED:
        _leave_interrupted()
    sys.exit(status)


def _leave_interrupted() -> NoReturn:
    """Leave at once: ``python -m`` would end itself by SIGINT where the interrupt struck within ``exec(text)``.

    Importing a dataclass executes text, and CPython's ``run_eval_code_obj`` notes such an interrupt, caught or not.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
