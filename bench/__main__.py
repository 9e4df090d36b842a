"""Measure gpuinstall against uv in the same run.

``python -m bench [lock] [change]`` runs all or the given measurements. BENCH_BEFORE is
another gpuinstall program, which is measured, too. ``change`` needs torch's CPU wheel in
PIP_FIND_LINKS. Each program has two columns: real time without verification, and CPU time.
"""

from __future__ import annotations

import sys
from importlib import import_module

from bench.harness import PROGRAMS

if __name__ == "__main__":
    heads = "".join(f"{name:>18}" for name in ("uv", *PROGRAMS))
    sys.stdout.write(f"{'seconds: real, CPU':<40}{heads}\n")
    for part in sys.argv[1:] or ("lock", "change"):
        import_module(f"bench.{part}").main()
