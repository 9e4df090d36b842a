"""The file that starts this program, which outlives its updates."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpuinstall.base.version import __version__


def command_file() -> Path:
    """Return the file that is called to run the tool."""
    home = tool_home()
    name = "gpuinstall.cmd" if os.name == "nt" else "gpuinstall"
    return home / "bin" / name if home else Path(sys.executable).with_name("gpuinstall")


def tool_home() -> Path | None:
    """Return the folder that bootstrap.py made; None if something else has installed us."""
    folder = Path(sys.prefix).parent
    return (
        folder
        if (folder / "bin").is_dir()
        and Path(sys.prefix).name.startswith(f"{__version__}-")
        else None
    )
