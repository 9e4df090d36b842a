"""The lines that a shell wants: to activate an environment, to find a program, to set variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gpuinstall.shell import ShellName, quoted
from gpuinstall.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


Shell = Literal["sh", "bash", "zsh", "fish", "powershell"]
"""The shells that variables are written for."""
COMPLETED = ("bash", "zsh", "fish", "powershell")
"""The shells that completion is written for."""


def activation(venv: str, shell: ShellName, *, windows: bool) -> str:
    """The line that activates an environment."""
    name = {"fish": "activate.fish", "nu": "activate.nu", "powershell": "activate.ps1", "cmd": "activate.bat"}
    plain = ("\\Scripts\\" if windows else "/bin/").join((venv, name.get(shell, "activate")))
    file = quoted(plain, shell)
    verb = {"nu": "overlay use ", "sh": ". ", "cmd": "", "powershell": "" if file == plain else "& "}
    return verb.get(shell, "source ") + file


def on_path(folder: str, shell: ShellName) -> str:
    """The line that puts a folder on PATH, for this window alone or, where the shell has one, for good."""
    if shell == "cmd":
        return f'set "PATH={visible(folder)};%PATH%"'
    lines = {
        "fish": "fish_add_path {}",
        "nu": "$env.PATH = ($env.PATH | prepend {})",
        "powershell": "$env:PATH = {} + [IO.Path]::PathSeparator + $env:PATH",
    }
    return lines.get(shell, "export PATH={}:$PATH").format(_value(folder, shell))


def start_files(home: Path) -> dict[str, Path]:
    """Name the file that each shell reads as it starts; of other shells it lies anywhere."""
    names = {"bash": ".bashrc", "zsh": ".zshrc", "sh": ".profile", "fish": ".config/fish/config.fish"}
    return {shell: home / name for shell, name in names.items()}


def assignments(variables: Mapping[str, str], shell: Shell) -> str:
    """Write variables as lines that a shell evaluates."""
    form = {"fish": "set -gx {} {}", "powershell": "$env:{} = {}"}.get(shell, "export {}={}")
    return "".join(f"{form.format(name, _value(value, shell))}\n" for name, value in variables.items())


def _value(text: str, shell: ShellName) -> str:
    """PowerShell would run a bare word that stands where it expects a value."""
    word = quoted(text, shell)
    return f"'{word}'" if shell == "powershell" and word == text else word
