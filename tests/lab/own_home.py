"""A home for the session: no settings of the user or a CI runner count, and nothing is written into the user's folders."""

import os
from pathlib import Path

USER_HOME = Path(os.environ.setdefault("LAB_USER_HOME", str(Path.home())))
"""Where this machine's Pythons and uv's downloads lie; the workers of a session are told it."""
KEPT = ("UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR")


def move_in(home: Path):
    """Let this process and its children live in an empty home; what uv fetched for the user is still used."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or USER_HOME / ".cache")
    data = Path(os.environ.get("XDG_DATA_HOME") or USER_HOME / ".local" / "share")
    os.environ.setdefault("UV_CACHE_DIR", str(cache / "uv"))
    os.environ.setdefault("UV_PYTHON_INSTALL_DIR", str(data / "uv" / "python"))
    os.environ.setdefault("PIP_CACHE_DIR", str(cache / "pip"))
    for name in list(os.environ):
        if name.startswith(("UV_", "XDG_", "GPUINSTALL_")) and name not in KEPT:
            del os.environ[name]
    # Not os.devnull: pip would then read no file of an environment either.
    os.environ.pop("PIP_CONFIG_FILE", None)
    # The tests play users' machines: commands warn on a runner that it may not be the machine of the target.
    os.environ.pop("CI", None)
    os.environ["PATH"] = os.pathsep.join(_without_slurm(home))
    os.environ["HOME"] = str(home)


def _without_slurm(home: Path):
    """Yield the folders of PATH, and for one that has Slurm's commands another, of links to all else that it has."""
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
