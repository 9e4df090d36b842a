"""The shell that a person types into, and the lines that it wants."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

COMPLETED = ("bash", "zsh", "fish", "powershell")
"""The shells that completion is written for."""
_NAMES = {"bash": "bash", "zsh": "zsh", "fish": "fish", "nu": "nu", "pwsh": "powershell", "dash": "sh", "sh": "sh"}


def this_shell(environ: Mapping[str, str], parent: str | None = None) -> str:
    """Name the shell: the program that started us, as far as that is told, else what the variables say."""
    if parent in _NAMES:
        return _NAMES[parent]
    if "NU_VERSION" in environ:
        return "nu"
    if os.name == "nt":
        return "powershell" if len(environ.get("PSModulePath", "").split(";")) > 2 else "cmd"
    return _NAMES.get(Path(environ.get("SHELL", "sh")).name, "sh")


def parent_program() -> str | None:
    """The name of the program that started us, where the system tells it."""
    with suppress(OSError):
        return Path(f"/proc/{os.getppid()}/comm").read_text(encoding="utf-8").strip()
    return None


def activation(venv: str, shell: str, *, windows: bool) -> str:
    """The line that activates an environment."""
    name = {"fish": "activate.fish", "nu": "activate.nu", "powershell": "activate.ps1", "cmd": "activate.bat"}
    file = ("\\Scripts\\" if windows else "/bin/").join((venv, name.get(shell, "activate")))
    if shell == "powershell":
        return file if _is_plain(file) else f"& {_quoted(file, shell)}"
    if shell == "cmd":
        return f'"{file}"' if " " in file else file
    verb = {"nu": "overlay use", "sh": "."}.get(shell, "source")
    return f"{verb} {_quoted(file, shell)}"


def on_path(folder: str, shell: str) -> str:
    """The line that puts a folder on PATH, for this window alone or, where the shell has one, for good."""
    if shell == "cmd":
        return f"set PATH={folder};%PATH%"
    lines = {
        "fish": "fish_add_path {}",
        "nu": "$env.PATH = ($env.PATH | prepend {})",
        "powershell": "$env:PATH = {} + [IO.Path]::PathSeparator + $env:PATH",
    }
    return lines.get(shell, "export PATH={}:$PATH").format(_quoted(folder, shell))


def _quoted(text: str, shell: str) -> str:
    from gpuinstall.export.shell import quoted

    return text if shell in {"fish", "nu"} and _is_plain(text) else quoted(text, shell)


def _is_plain(text: str) -> bool:
    return all(character.isalnum() or character in "/\\.:_-" for character in text)
