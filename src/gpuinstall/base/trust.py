"""Decide whether the user trusts the folders in which gpuinstall runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpuinstall.base.files import (
    find_repository,
    parse_toml,
    read_document,
    real_path,
    xdg_folder,
)

TRUST_FOLDER = "GPUINSTALL_TRUST_FOLDER"


def user_folder() -> Path:
    """Return the folder of the user's configuration files."""
    if sys.platform == "win32":
        return xdg_folder("APPDATA", "")
    return xdg_folder("XDG_CONFIG_HOME", ".config")


def find_user_config() -> Path:
    """Return the user's configuration file for gpuinstall."""
    return user_folder() / "gpuinstall" / "config.toml"


def trusts_folders() -> bool:
    """Return whether the user's variable or configuration trusts folders."""
    variable = os.environ.get(TRUST_FOLDER, "")
    if variable:
        return variable == "1"
    try:
        table = parse_toml(read_document(find_user_config(), None))
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        # Commands that read the configuration report the error.
        return False
    return table.get("trust-folder", True) is True


def is_in_project(path: str, folder: Path | None = None) -> bool:
    """Return whether a path, or its target, is in the project of a folder.

    Args:
        path: The path.
        folder: The folder. None: the working folder.
    """
    try:
        project = find_repository(folder or Path.cwd())
    except OSError:  # the working folder was removed
        return False
    paths = (Path(path).absolute(), real_path(path))
    # The home folder and the folders above it are not projects.
    is_project = not real_path(Path.home()).is_relative_to(project)
    return is_project and any(path.is_relative_to(project) for path in paths)
