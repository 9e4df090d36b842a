"""Where environments were made: one small file for each in the user's state folder, so that they can be listed."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from gpuinstall.environments.environment import read_marker
from gpuinstall.errors import InstallationError
from gpuinstall.files import write_atomically


def remember(venv: Path) -> None:
    """Keep the path of an environment; a folder that cannot be written is no fault."""
    with suppress(InstallationError):
        if not _record(venv).exists():
            write_atomically(_record(venv), f"{venv}\n")


def forget(venv: Path) -> None:
    """Forget an environment."""
    with suppress(OSError):
        _record(venv).unlink(missing_ok=True)


def remembered() -> list[Path]:
    """The environments that are still where they were made."""
    paths = {Path(record.read_text(encoding="utf-8").rstrip("\n")) for record in _folder().glob("*.path")}
    return sorted(path for path in paths if read_marker(path))


def _record(venv: Path) -> Path:
    return _folder() / f"{hashlib.sha256(bytes(venv)).hexdigest()[:32]}.path"


def _folder() -> Path:
    from platformdirs import user_state_path

    return user_state_path("gpuinstall", appauthor=False) / "environments"
