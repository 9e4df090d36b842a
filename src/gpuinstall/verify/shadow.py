"""What a program started in this folder meets and the isolated proof does not: another torch, a module in the way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall import process
from gpuinstall.verify.environment import LOOK_SECONDS
from gpuinstall.verify.report import last_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.verify.environment import Surroundings

PLAIN_IMPORT = "import torch\ntry:\n    import numpy\nexcept ModuleNotFoundError:\n    pass\n"


def disturbance(python: Path, around: Surroundings, *, imported: bool) -> str | None:
    """Say what is in the way of a program that is started here with ``python``; None where nothing is.

    ``imported`` says that torch can be imported in isolation.
    """
    if around.disturbed:
        home = os.environ.get("PYTHONHOME")
        said = f"the interpreter does not start here unless isolated (python -I): {around.disturbed}"
        return f"{said}; PYTHONHOME={home}" if home else said
    if around.shadow:
        return f"a program started in this folder would import another torch: {_placed(around.shadow)}"
    return _in_the_way(python, around.plain.doubled) if imported and around.plain.doubled else None


def _in_the_way(python: Path, doubled: Sequence[str]) -> str | None:
    """Import torch plainly: a module that stands before the interpreter's own may do no harm."""
    done = process.run([python, "-B", "-c", PLAIN_IMPORT], seconds=LOOK_SECONDS)
    if done.ok:
        return None
    guilty = next((path for path in doubled if path in done.err), doubled[0])
    return f"a program started in this folder cannot import torch ({last_words(done, LOOK_SECONDS)}): {_placed(guilty)}"


def _placed(path: str) -> str:
    """Name the file or the package, and how it gets onto the interpreter's path."""
    top = Path(path).parent if Path(path).name == "__init__.py" else Path(path)
    if top.parent == Path.cwd():
        return f"{top}, which lies in it"
    folders = [Path(entry).absolute() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return f"{top}, from {'PYTHONPATH' if top.parent in folders else 'packages of the user'}"
