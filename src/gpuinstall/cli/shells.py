"""The shell that a person types into, and the lines that it wants."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Shell = Literal["sh", "bash", "zsh", "fish", "powershell"]
"""The shells that variables are written for."""
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
        return file if _is_plain(file) else f"& {_plain_or_quoted(file, shell)}"
    if shell == "cmd":
        return f'"{file}"' if " " in file else file
    verb = {"nu": "overlay use", "sh": "."}.get(shell, "source")
    return f"{verb} {_plain_or_quoted(file, shell)}"


def on_path(folder: str, shell: str) -> str:
    """The line that puts a folder on PATH, for this window alone or, where the shell has one, for good."""
    if shell == "cmd":
        return f"set PATH={folder};%PATH%"
    lines = {
        "fish": "fish_add_path {}",
        "nu": "$env.PATH = ($env.PATH | prepend {})",
        "powershell": "$env:PATH = {} + [IO.Path]::PathSeparator + $env:PATH",
    }
    return lines.get(shell, "export PATH={}:$PATH").format(_plain_or_quoted(folder, shell))


def assignments(said: Mapping[str, str], shell: Shell) -> str:
    """Write variables as lines that a shell evaluates."""
    form = {"fish": "set -gx {} {}", "powershell": "$env:{} = {}"}.get(shell, "export {}={}")
    return "".join(f"{form.format(name, _quoted(value, shell))}\n" for name, value in said.items())


def _plain_or_quoted(text: str, shell: str) -> str:
    return text if shell in {"fish", "nu"} and _is_plain(text) else _quoted(text, shell)


def _quoted(text: str, shell: str) -> str:
    """Write a text as one word of a shell, whatever it holds."""
    if shell == "fish":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if shell == "powershell":
        return "'" + text.replace("'", "''") + "'"
    if shell == "nu":
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return shlex.quote(text)


def _is_plain(text: str) -> bool:
    return all(character.isalnum() or character in "/\\.:_-" for character in text)
