"""The words by which advice names one environment, so that every command in it hits that one and no other."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.advice import quoted
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.paths import environment_of, packages_folders
from gpuinstall.files import read_document

if TYPE_CHECKING:
    from pathlib import Path

_TOOLKIT = re.compile(r"^cuda\b[^=\n]*= *'(\d+)\.(\d+)", re.MULTILINE)


def advice_words(python: Path) -> dict[str, str]:
    """Name the environment of an interpreter: ``at`` follows a command that looks at it, ``into`` one that renews it.

    An environment of others is replaced as a whole, and kept. What is no virtual environment (conda's, the system's, a
    portable one) is never installed into by us: without ``into`` an environment of its own is made. ``cuda`` and
    ``toolkit`` are the CUDA of its torch, absent where it has none.
    """
    venv = environment_of(python)
    words = {"python": quoted(python), "prefix": quoted(venv), "at": f" --venv {quoted(venv)}"} | _toolkit(venv)
    if not (venv / "pyvenv.cfg").is_file():
        return words
    return words | {"into": words["at"] + ("" if read_marker(venv) else " --replace")}


def _toolkit(venv: Path) -> dict[str, str]:
    """Read the CUDA of an environment's torch from the text of its version, which is not run."""
    for folder in packages_folders(venv):
        with suppress(OSError, ValueError):
            found = _TOOLKIT.search(read_document(folder / "torch" / "version.py", venv))
            if found:
                return {"cuda": f"{found[1]}.{found[2]}", "toolkit": f"{found[1]}-{found[2]}"}
    return {}
