"""Decide whether the user trusts the folders in which gpuinstall runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpuinstall.base.files import parse_toml, read_document, xdg_folder

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
