"""The words by which advice names one environment, so that every command in it hits that one and no other."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.environments.environment import installed_packages, locked_versions, read_marker, unlocked_packages
from gpuinstall.environments.paths import environment_of, made_for, packages_folders
from gpuinstall.files import read_document
from gpuinstall.shell import quoted

if TYPE_CHECKING:
    from pathlib import Path

_TOOLKIT = re.compile(r"^cuda\b[^=\n]*= *'(\d+)\.(\d+)", re.MULTILINE)


def advice_words(python: Path) -> dict[str, str]:
    """Name the environment of an interpreter: ``at`` follows a command that looks at it, ``into`` one that renews it.

    ``cuda`` and ``toolkit`` are the CUDA of its torch, absent where it has none. One that is being built is named by
    the place that it is built for.
    """
    venv = environment_of(python)
    place = made_for(venv)
    words = {"python": quoted(place / python.relative_to(venv)), "prefix": quoted(place)} | _toolkit(venv)
    words["at"] = f" --venv {quoted(place)}"
    if renewing := renewing_arguments(venv):
        words["into"] = "".join(f" {quoted(word)}" for word in renewing)
    return words


def renewing_arguments(venv: Path) -> tuple[str, ...]:
    """Give the arguments by which our ``install`` makes an environment again; the one before is kept.

    ``--replace`` is among them where it would refuse: in environments of others, and where something else has changed
    the packages. What is no virtual environment (conda's, the system's, a portable one) is never installed into by us:
    without arguments an environment of its own is made.
    """
    if not (venv / "pyvenv.cfg").is_file():
        return ()
    marker = read_marker(venv)
    changed = marker is None
    if marker:
        installed = installed_packages(venv)
        locked = {name: version or installed.get(name, "") for name, version in locked_versions(venv, marker).items()}
        changed = bool(unlocked_packages({name: installed[name] for name in installed if name != "pip"}, locked))
    return ("--venv", str(made_for(venv)), *(("--replace",) if changed else ()))


def _toolkit(venv: Path) -> dict[str, str]:
    """Read the CUDA of an environment's torch from the text of its version, which is not run."""
    for folder in packages_folders(venv):
        with suppress(OSError, ValueError):
            version = _TOOLKIT.search(read_document(folder / "torch" / "version.py", venv))
            if version:
                return {"cuda": f"{version[1]}.{version[2]}", "toolkit": f"{version[1]}-{version[2]}"}
    return {}
