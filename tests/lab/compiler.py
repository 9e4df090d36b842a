"""C compiler for the fakes: the machine's ``cc``, or one from ziglang."""

import os
import shutil
import sysconfig
from pathlib import Path

import pytest

from tests.lab.programs import write_program

ZIG = Path(sysconfig.get_path("purelib"), "ziglang", "zig")
NAME = "LAB_COMPILER"
"""The variable with the compiler, unless it is the machine's own."""


def provide(folder: Path):
    """Put a ``cc`` on PATH unless this machine has one."""
    if shutil.which("cc") or not ZIG.exists():
        return
    os.environ[NAME] = "ziglang"
    write_program(folder / "cc", f'exec "{ZIG}" cc -g0 -fno-sanitize=all "$@"')
    os.environ["PATH"] += f"{os.pathsep}{folder}"
    # Shared by all sessions, because the first library takes a minute to link.
    cache = ZIG.parents[4] / "zig-cache"
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        os.environ.setdefault(name, str(cache))


def skip_without_gnu_layout():
    """Skip a test that needs a library with its tables at the beginning."""
    if NAME in os.environ:
        pytest.skip("no C compiler (cc): ziglang puts a library's tables at its end")
