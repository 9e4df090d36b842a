"""C compiler for the fakes: the machine's ``cc``, or one made of ziglang."""

import os
import shutil
import sysconfig
from pathlib import Path

from tests.lab.programs import write_program

ZIG = Path(sysconfig.get_path("purelib"), "ziglang", "zig")


def provide(folder: Path):
    """Put a ``cc`` into a folder and on PATH, unless this machine has one."""
    if shutil.which("cc") or not ZIG.exists():
        return
    write_program(folder / "cc", f'exec "{ZIG}" cc "$@"')
    os.environ["PATH"] += f"{os.pathsep}{folder}"
    # All sessions share it: the first library takes a minute to link.
    cache = ZIG.parents[4] / "zig-cache"
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        os.environ.setdefault(name, str(cache))
