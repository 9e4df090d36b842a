"""``python -m gpuinstall`` and the console script."""

from __future__ import annotations

import gc
import sys
from io import TextIOWrapper

INTERRUPTED = 130


def main() -> None:
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
    sys.exit(status)


if __name__ == "__main__":
    main()
