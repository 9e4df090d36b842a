"""``python -m gpuinstall`` and the console script."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    from gpuinstall.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
