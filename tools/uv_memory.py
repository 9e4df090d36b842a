"""``python -m tools.uv_memory REQUIREMENT …``: what uv's resolver takes of memory, beside what the watch allows it.

It resolves from an empty cache and again from that cache, against the index that uv is set to, a minute each at most.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuinstall import uv
from gpuinstall.patience import Patience
from gpuinstall.process import MEMORY_BYTES

SECONDS = 60.0
EVERY_S = 0.01


def main() -> None:
    """Print a line for the empty cache and one for the full one."""
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("empty", "full"):
            held, aside, seconds = measured(sys.argv[1:], Path(folder))
            said = f"{held} MB at most, {aside} of {MEMORY_BYTES // 1_000_000} MB set aside"
            sys.stdout.write(f"{' '.join(sys.argv[1:])}, {cache} cache: {said}, {seconds:.1f} s\n")


def measured(requirements: list[str], folder: Path) -> tuple[int, int, float]:
    """Return the most memory that it used and that it set aside, in MB, and the seconds."""
    environment = {**os.environ, "UV_CACHE_DIR": str(folder / "cache")}
    environment |= Patience().variables(environment)
    (folder / "in.txt").write_text("\n".join(requirements), encoding="utf-8")
    start, held, aside = time.monotonic(), 0, 0
    command = [
        str(uv.uv()),
        "pip",
        "compile",
        "-q",
        "--no-annotate",
        str(folder / "in.txt"),
        "-o",
        str(folder / "out.txt"),
    ]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as program:
        while program.poll() is None:
            held, aside = max(held, _megabytes(program.pid, "RssAnon")), max(aside, _megabytes(program.pid, "VmData"))
            if time.monotonic() - start > SECONDS:
                program.terminate()
            time.sleep(EVERY_S)
    (folder / "out.txt").unlink(missing_ok=True)
    return held, aside, time.monotonic() - start


def _megabytes(pid: int, fact: str) -> int:
    """What proc(5) says of a program's memory; 0 where it has ended."""
    try:
        found = re.search(rf"{fact}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    except OSError:
        found = None
    return int(found[1]) // 1000 if found else 0


if __name__ == "__main__":
    main()
