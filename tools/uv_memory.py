"""``python -m tools.uv_memory REQUIREMENT …``: what uv's resolver takes of memory, beside what the watch allows it.

It resolves from an empty cache and again from that cache, against the index that uv is set to, a minute each at most.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuinstall import uv
from gpuinstall.patience import Patience
from gpuinstall.process import FOR_EACH_BYTE, UNSAVED_BYTES, memory, moved

SECONDS = 60.0
EVERY_S = 0.01


def main() -> None:
    """Print a line for the empty cache and one for the full one."""
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("empty", "full"):
            most, beyond, seconds = measured(sys.argv[1:], Path(folder))
            allowed = UNSAVED_BYTES // 1_000_000
            said = f"{most // 1_000_000} MB at most, {beyond // 1_000_000} of {allowed} MB beyond what is in files"
            sys.stdout.write(f"{' '.join(sys.argv[1:])}, {cache} cache: {said}, {seconds:.1f} s\n")


def measured(requirements: list[str], folder: Path) -> tuple[int, int, float]:
    """Return the most memory, the most of it that files do not account for, both in bytes, and the seconds."""
    environment = {**os.environ, "UV_CACHE_DIR": str(folder / "cache")}
    environment |= Patience().variables(environment)
    (folder / "in.txt").write_text("\n".join(requirements), encoding="utf-8")
    start, most, beyond = time.monotonic(), 0, 0
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
            held = memory(program.pid)
            most = max(most, held)
            beyond = max(beyond, held - FOR_EACH_BYTE * (moved(program.pid, "rchar", "wchar") or 0))
            if time.monotonic() - start > SECONDS:
                program.terminate()
            time.sleep(EVERY_S)
    (folder / "out.txt").unlink(missing_ok=True)
    return most, beyond, time.monotonic() - start


if __name__ == "__main__":
    main()
