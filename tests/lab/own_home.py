"""An empty home for the session.

Settings of the user or a CI runner have no effect, and nothing is written into the
user's home.
"""

import os
import sys
from pathlib import Path

USER_HOME = Path(os.environ.setdefault("LAB_USER_HOME", str(Path.home())))
"""This machine's Pythons and uv cache, for the workers of a session."""
KEPT = ("UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR")


def move_in(home: Path):
    """Give this process an empty home, but keep the user's uv cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or USER_HOME / ".cache")
    data = Path(os.environ.get("XDG_DATA_HOME") or USER_HOME / ".local" / "share")
    os.environ.setdefault("UV_CACHE_DIR", str(cache / "uv"))
    os.environ.setdefault("UV_PYTHON_INSTALL_DIR", str(data / "uv" / "python"))
    os.environ.setdefault("PIP_CACHE_DIR", str(cache / "pip"))
    for name in list(os.environ):
        if name.startswith(("UV_", "XDG_", "GPUINSTALL_")) and name not in KEPT:
            del os.environ[name]
    # With os.devnull, pip would also ignore the file of an environment.
    os.environ.pop("PIP_CONFIG_FILE", None)
    # On a CI runner, commands warn that the target may be another machine.
    os.environ.pop("CI", None)
    # A shim of pyenv takes three times as long to start as its Python.
    folders = (str(Path(sys.base_prefix, "bin")), *_without_slurm(home))
    os.environ["PATH"] = os.pathsep.join(folders)
    os.environ["HOME"] = str(home)
    # Hints contain the path of a command that is not on PATH.
    programs = home / "programs"
    programs.mkdir(exist_ok=True)
    link = programs / "gpuinstall"
    if not link.exists():
        link.symlink_to(Path(sys.executable).with_name("gpuinstall"))
    os.environ["PATH"] += f"{os.pathsep}{programs}"


def _without_slurm(home: Path):
    """Yield PATH's folders, with links instead of the folder with sbatch."""
    for number, folder in enumerate(os.get_exec_path()):
        if not os.access(Path(folder, "sbatch"), os.F_OK):
            yield folder
            continue
        links = home / f"programs-{number}"
        links.mkdir()
        for program in Path(folder).iterdir():
            if program.name != "sbatch":
                (links / program.name).symlink_to(program)
        yield str(links)
