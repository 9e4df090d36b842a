"""The shell that a person types into: a text as one printable word of it, and the lines that it needs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

ShellName = Literal["sh", "bash", "zsh", "fish", "powershell", "cmd"]
Shell = Literal["sh", "bash", "zsh", "fish", "powershell"]
"""The shells that variables are written for."""
_PLAIN = re.compile(r"(?!=)[\w@%+=:,./-]+", re.ASCII)
_PLAIN_ON_WINDOWS = re.compile(r"[\w.:\\/+=-]+", re.ASCII)
_SCRIPTS = {
    "fish": "activate.fish",
    "powershell": "activate.ps1",
    "cmd": "activate.bat",
}
_ACTIVATIONS = {"cmd": "{}", "powershell": "{}", "sh": ". {}"}
_ON_PATH = {
    "cmd": 'set "PATH={};%PATH%"',
    "fish": "fish_add_path {}",
    "powershell": "$env:PATH = {} + [IO.Path]::PathSeparator + $env:PATH",
}
_SETTINGS = {
    "fish": ("set -gx {} {}", "set -e {}"),
    "powershell": ("$env:{} = {}", "$env:{} = $null"),
}
_USUAL_SETTINGS = ("export {}={}", "unset {}")


def this_shell(environ: Mapping[str, str], parent: str | None = None) -> ShellName:
    """Return the shell: the program that started us, as far as that is told, else what the variables say."""
    names: dict[str, ShellName] = {name: name for name in get_args(ShellName)}
    names["dash"] = "sh"
    names["pwsh"] = "powershell"
    if parent in names:
        return names[parent]
    if os.name == "nt":
        # cmd has at most the two folders of modules that the system sets.
        module_folders = environ.get("PSModulePath", "").split(";")
        return "powershell" if len(module_folders) > 2 else "cmd"
    program = Path(environ.get("SHELL", "sh"))
    return names.get(program.name, "sh")


def parent_program() -> str | None:
    """Return the name of the program that started us, if the system tells it."""
    with suppress(OSError):
        return Path(f"/proc/{os.getppid()}/comm").read_text(encoding="utf-8").strip()
    return None


def quoted(word: Path | str, shell: ShellName | None = None) -> str:
    """Return a text as one word of a shell; without one, of the shells of this system.

    What cannot be printed, such as a line break, is written out, so that nothing is run for it.
    """
    text = _printable(str(word))
    if shell is None and os.name == "nt":
        shell = this_shell(os.environ)
    is_windows = shell in {"powershell", "cmd"}
    if (_PLAIN_ON_WINDOWS if is_windows else _PLAIN).fullmatch(text):
        return text
    if is_windows:
        return _value(text, shell)
    # Not shlex.quote: in fish, a backslash within single quotes is one before a quote or another backslash.
    words = [
        f"\\{part}" if part in {"\\", "'"} else f"'{part}'"
        for part in re.split(r"([\\'])", text)
        if part
    ]
    return "".join(words) or "''"


def _printable(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _value(text: str, shell: ShellName | None) -> str:
    """Return a word that stands for itself: PowerShell would run a bare one if it expects a value."""
    text = _printable(text)
    if shell == "cmd":
        doubled = text.replace('"', '""')
        return f'"{doubled}"'
    if shell == "powershell":
        # The marks that typesetters use end a text too.
        doubled = re.sub("(['‘’‚‛])", r"\1\1", text)
        return f"'{doubled}'"
    return quoted(text, shell)


def joined(words: Iterable[Path | str], shell: ShellName | None = None) -> str:
    """Return a command line."""
    return " ".join(quoted(word, shell) for word in words)


def activation(
    venv: str,
    shell: ShellName,
    *,
    windows: bool,
) -> str:
    """Return the line that activates an environment."""
    folder = "\\Scripts\\" if windows else "/bin/"
    path = f"{venv}{folder}{_SCRIPTS.get(shell, 'activate')}"
    file = quoted(path, shell)
    if shell == "powershell" and file != path:
        return f"& {file}"
    return _ACTIVATIONS.get(shell, "source {}").format(file)


def on_path(folder: str, shell: ShellName) -> str:
    """Return the line that puts a folder on PATH, for this window alone or, if the shell has one, for good."""
    word = _printable(folder) if shell == "cmd" else _value(folder, shell)
    return _ON_PATH.get(shell, "export PATH={}:$PATH").format(word)


def assignments(variables: Mapping[str, str | None], shell: Shell) -> str:
    """Return variables as lines that a shell evaluates; None ends one."""
    setting, ending = _SETTINGS.get(shell, _USUAL_SETTINGS)
    lines = []
    for name, value in variables.items():
        if value is None:
            lines.append(ending.format(name))
        else:
            lines.append(setting.format(name, _value(value, shell)))
    return "".join(f"{line}\n" for line in lines)
