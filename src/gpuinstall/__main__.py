"""``python -m gpuinstall`` and the console script."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing takes longer to import than this module
if TYPE_CHECKING:
    from typing import NoReturn, TextIO

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line and exit with its status."""
    import gc

    # A plan allocates and hardly frees: fewer collections make it a tenth faster.
    gc.set_threshold(100_000)
    try:
        from gpuinstall.base.interruption import install_handlers

        install_handlers()
        sys.stdout, sys.stderr = _writable(sys.stdout), _writable(sys.stderr)

        from gpuinstall.cli.main import run_command_line

        status = run_command_line(sys.argv[1:])
    except KeyboardInterrupt:
        status = INTERRUPTED
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"error: gpuinstall's own environment is incomplete, without {error.name}\n"
            "  do    python3 bootstrap.py --help   # recreates it\n"
        )
        status = 4
    _leave(status)


def _writable(stream: TextIO | None) -> TextIO:
    """Write past a stream that was closed before we came, and what its encoding lacks as question marks."""
    from io import TextIOWrapper
    from pathlib import Path

    stream = stream or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  it stays open
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")  # a log in ASCII has no dot or times sign
    return stream


def _leave(status: int) -> NoReturn:
    """Leave at once with what was written: CPython could still end itself by SIGINT on its way out.

    It does if an interrupt strikes while it takes itself apart, and if one has struck within ``exec(text)``
    (which importing a dataclass is), caught or not.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, KeyboardInterrupt):
        pass
    os._exit(status)


if __name__ == "__main__":
    main()
