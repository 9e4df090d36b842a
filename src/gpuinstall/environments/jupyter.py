"""The Jupyter kernel of an environment: a folder among the user's kernels, where every Jupyter of theirs looks."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.environments.paths import interpreter
from gpuinstall.files import remove_file, write_atomically
from gpuinstall.launcher import command_file

if TYPE_CHECKING:
    from collections.abc import Collection

PACKAGE = "ipykernel"
"""The package that runs the kernel; its own kernel, ``python3``, is for a Jupyter within the same environment."""


def settle_kernel(
    venv: Path,
    packages: Collection[str],
    *,
    wanted: bool,
) -> None:
    """Make the kernel of an environment, or remove one that its packages can no longer run.

    Args:
        venv: The environment.
        packages: The packages that it holds.
        wanted: Whether to make one; one that is there stays in any case, as long as it runs.

    Raises:
        InstallationError: it cannot be written.
    """
    if PACKAGE not in packages:
        remove_kernel(venv)
    elif wanted:
        # As ``python -m ipykernel install --user`` writes it, but started by ``gpuinstall run``: an environment whose
        # torch was exchanged since its proof is refused here as it is everywhere else.
        command = [
            str(command_file()),
            "run",
            "--venv",
            str(venv),
            str(interpreter(venv)),
            "-m",
            "ipykernel_launcher",
            "-f",
            "{connection_file}",
        ]
        specification = {
            "argv": command,
            "display_name": kernel_name(venv),
            "language": "python",
            "metadata": {"debugger": True},
        }
        text = json.dumps(specification, indent=1)
        write_atomically(kernel_folder(venv) / "kernel.json", f"{text}\n")


def remove_kernel(venv: Path) -> None:
    """Remove the kernel of an environment, if there is one; what the user added to its folder stays."""
    folder = kernel_folder(venv)
    remove_file(folder / "kernel.json")
    with suppress(OSError):
        folder.rmdir()


def kernel_name(venv: Path) -> str:
    """Return what users choose in a notebook: ``project (PyTorch)``."""
    project = venv.parent.name
    place = project if venv.name == ".venv" else f"{project}/{venv.name}"
    return f"{place} (PyTorch)"


def kernel_folder(venv: Path) -> Path:
    """Return where the kernel of an environment lies; Jupyter takes letters, digits, hyphens, dots and underscores."""
    project = venv.parent.name.lower()
    word = re.sub(r"[^a-z0-9]+", "-", project).strip("-")
    digest = hashlib.sha256(bytes(venv)).hexdigest()[:8]
    return _data_folder() / "kernels" / f"gpuinstall-{word}-{digest}".replace("--", "-")


def _data_folder() -> Path:
    """Return the user's folder of Jupyter, by its own rule, which is not every system's."""
    configured = os.environ.get("JUPYTER_DATA_DIR")
    if configured:
        return Path(configured)
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library/Jupyter"
    if os.name == "nt":
        return Path(os.environ.get("APPDATA") or home / "AppData/Roaming") / "jupyter"
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share") / "jupyter"
