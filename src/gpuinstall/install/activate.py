"""``activate`` for shells that do not tell a script where it lies: an environment that moves says so itself."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def settle_activate(built: Path, final: Path) -> None:
    """Make ``activate`` of the environment at ``built`` right for ``final``, where it is about to go.

    uv's relocatable form finds its own place in bash, zsh and ksh; plain sh (dash) cannot. The other shells' files
    and all scripts find it themselves.
    """
    script = built / "bin" / "activate"
    if script.is_file():
        script.write_text(settled(script.read_text(encoding="utf-8"), final), encoding="utf-8")


def settled(text: str, final: Path) -> str:
    """Replace the line that works out where the environment lies."""
    lines = text.splitlines(keepends=True)
    return "".join(
        f"VIRTUAL_ENV={shlex.quote(str(final))}\n" if line.startswith("VIRTUAL_ENV=''") else line for line in lines
    )
