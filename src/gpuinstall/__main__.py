"""Entry point of ``python -m gpuinstall`` and the console script."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing takes longer to import than this module
if TYPE_CHECKING:
    from typing import NoReturn, TextIO

INTERRUPTED = 130


def main() -> NoReturn:
    """Run the command line, and exit with its exit status."""
    if sys.getfilesystemencoding() != "utf-8":
        # Names of files in wheels are in UTF-8, even if LC_ALL is C.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606  no shell
    import gc

    # ``plan`` creates little garbage, so it is a tenth faster with fewer collections.
    gc.set_threshold(100_000)
    try:
        from gpuinstall.base.interruption import install_handlers

        # Python can lose an exception that a signal raises during an import.
        install_handlers(lambda *_: os._exit(INTERRUPTED))
        sys.stdout, sys.stderr = _writable(sys.stdout), _writable(sys.stderr)

        from gpuinstall.cli.main import run_command_line

        install_handlers()
        status = run_command_line(sys.argv[1:])
    except KeyboardInterrupt:
        status = INTERRUPTED
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"error: gpuinstall's own environment is incomplete: {error.name} is missing\n"
            "  do    python3 bootstrap.py --help   # recreates it\n"
        )
        status = 4
    _exit(status)


def _writable(stream: TextIO | None) -> TextIO:
    """Return an output stream that accepts any text.

    The parent process may have closed the stream. Characters that the encoding lacks become
    question marks.
    """
    from io import TextIOWrapper
    from pathlib import Path

    stream = stream or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  it stays open
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")  # a log in ASCII
    return stream


def _exit(status: int) -> NoReturn:
    """Flush the output and exit immediately.

    CPython kills itself by SIGINT during a normal exit if a signal arrives then, or
    arrived within ``exec(text)``, as in the import of a dataclass.
    """
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, KeyboardInterrupt):
        pass
    # Windows' status of a crash, 0xC0000005, is too large for a C int.
    os._exit(status - 2**32 if status >= 2**31 else status)


if __name__ == "__main__":
    main()
