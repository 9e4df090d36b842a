"""A compiled fake libcuda in a folder like cuda-compat's."""

import shutil
from pathlib import Path

from tests.lab.driver import compiled


def make_libcuda(folder: Path, *, cuda: int = 13000, init: int = 0) -> Path:
    """Compile ``compat/libcuda.so.580.95.05`` and return it.

    Args:
        folder: The parent of the new folder ``compat``.
        cuda: The number that cuDriverGetVersion returns.
        init: The number that cuInit returns. Zero keeps the lab's own function.
    """
    lacking = ["cuDriverGetVersion"]
    text = f"int cuDriverGetVersion(int *version) {{ *version = {cuda}; return 0; }}\n"
    if init:
        lacking.append("cuInit")
        text += f"int cuInit(unsigned flags) {{ (void)flags; return {init}; }}\n"
    library = compiled(folder / "build", "cuda", lacking, text)
    libcuda = folder / "compat" / "libcuda.so.580.95.05"
    libcuda.parent.mkdir()
    shutil.copyfile(library, libcuda)
    (libcuda.parent / "libcuda.so.1").symlink_to(libcuda.name)
    return libcuda
