"""The shell that a person types into: a text as one word of it, shown or written, and the lines that it needs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from gpuinstall.base.text import is_shown, visible

ShellName = Literal["sh", "bash", "zsh", "fish", "csh", "powershell", "cmd"]
_SHELLS: dict[str, ShellName] = {name: name for name in get_args(ShellName)}
_SHELLS |= {"dash": "sh", "tcsh": "csh", "pwsh": "powershell"}
"""What a program is called, and which of our shells reads the same lines."""
_PLAIN = r"(?a)(?!=)[\w@%+=:,./-]+"
_ODD = r"(?a)[^\w@%+:,./-]"
_PLAIN_ON_WINDOWS = r"(?a)[\w.:\\/+=-]+"
_OF_WINDOWS = {"powershell", "cmd"}
_SCRIPTS = {
    "fish": "activate.fish",
    "csh": "activate.csh",
    "powershell": "activate.ps1",
    "cmd": "activate.bat",
}
_ACTIVATIONS = {"cmd": "{}", "powershell": "{}", "sh": ". {}"}
_ON_PATH = {
    "cmd": 'set "PATH={};%PATH%"',
    "fish": "fish_add_path {}",
    "csh": "set path = ({} $path:q)",
    "powershell": "$env:PATH = {} + [IO.Path]::PathSeparator + $env:PATH",
}
_BY_NUMBERS = {
    "powershell": ('"', "$([char]::ConvertFromUtf32({}))", '"'),
    "sh": ("\"$(printf %b '", "\\0{:03o}", "')\""),
    "fish": ("", "\\X{:02x}", ""),
    "csh": ("\"`printf %b '", "\\0{:03o}", "'`\""),
}
_USUAL_NUMBERS = ("$'", "\\x{:02x}", "'")
"""How a shell writes a byte, PowerShell a character, by its number, between what begins and ends such a word."""


def this_shell(environ: Mapping[str, str], parent: str | None = None) -> ShellName:
    """Return the shell: the program that started us, as far as that is told, else what the variables say.

    Args:
        environ: The variables.
        parent: The name of the program that started us, which may be no shell at all; None if it is not known.
    """
    if parent in _SHELLS:
        return _SHELLS[parent]
    if os.name == "nt":
        # cmd has at most the two folders of modules that the system sets.
        module_folders = environ.get("PSModulePath", "").split(";")
        return "powershell" if len(module_folders) > 2 else "cmd"
    program = Path(environ.get("SHELL", "sh"))
    return _SHELLS.get(program.name, "sh")


def parent_program() -> str | None:
    """Return the name of the program that started us, if the system tells it."""
    with suppress(OSError):
        return Path(f"/proc/{os.getppid()}/comm").read_text(encoding="utf-8").strip()
    return None


def quoted(word: Path | str, shell: ShellName | None = None) -> str:
    """Return a text as one word of a shell, to be shown: it can be pasted, and stands for the text to the last character.

    What cannot be printed, such as a line break, is written by its number, so that nothing is run for it. Without a
    shell it is one of the shells of this system.
    """
    text = str(word)
    if shell is None and os.name == "nt":
        shell = this_shell(os.environ)
    if shell in _OF_WINDOWS and re.fullmatch(_PLAIN_ON_WINDOWS, text):
        return text
    return _value(text, shell)


def _value(text: str, shell: ShellName | None) -> str:
    """Return a word that stands for itself: PowerShell would run a bare one if it expects a value."""
    if shell not in _OF_WINDOWS and re.fullmatch(_PLAIN, text):
        return text
    if all(map(is_shown, text)):
        return literal(text, shell or "sh")
    shell = shell or this_shell(os.environ)
    if shell == "cmd":
        # It has no way to write a character by its number.
        return literal(visible(text), shell)
    marks = text
    if shell != "powershell":
        # They know octets alone.
        marks = os.fsencode(text).decode("latin-1")
    before, number, after = _BY_NUMBERS.get(shell, _USUAL_NUMBERS)
    written = re.sub(_ODD, lambda odd: number.format(ord(odd[0])), marks)
    return f"{before}{written}{after}"


def literal(word: Path | str, shell: ShellName) -> str:
    """Return a text as one word of a shell, to be written into a file: every character stands there as itself.

    Args:
        word: The text.
        shell: The shell that will read the file.
    """
    text = str(word)
    match shell:
        case "cmd":
            doubled = text.replace('"', '""')
            return f'"{doubled}"'
        case "powershell":
            # The marks that typesetters use end a text too.
            doubled = re.sub("(['‘’‚‛])", r"\1\1", text)
            return f"'{doubled}'"
        case "csh":
            # Within quotes too, it looks for commands of before, and ends at a line break.
            text = re.sub(r"[!\n]", r"\\\g<0>", text.replace("'", r"'\''"))
            return f"'{text}'"
    # Not shlex.quote: in fish, a backslash within single quotes is one before a quote or another backslash.
    words = [
        f"\\{part}" if part in {"\\", "'"} else f"'{part}'"
        for part in re.split(r"([\\'])", text)
        if part
    ]
    return "".join(words) or "''"


def joined(words: Iterable[Path | str], shell: ShellName | None = None) -> str:
    """Return a command line."""
    return " ".join(quoted(word, shell) for word in words)


def activation(
    venv: str,
    shell: ShellName,
    *,
    windows: bool,
) -> str:
    """Return the line that activates an environment.

    Args:
        venv: Its folder, absolute or from the working folder.
        shell: The shell that the line is for.
        windows: Whether its scripts lie where Windows has them.
    """
    folder = "\\Scripts\\" if windows else "/bin/"
    path = f"{venv}{folder}{_SCRIPTS.get(shell, 'activate')}"
    file = quoted(path, shell)
    # A quoted word by itself is a text for PowerShell, and nothing is run.
    if shell == "powershell" and file != path:
        return f"& {file}"
    return _ACTIVATIONS.get(shell, "source {}").format(file)


def on_path(folder: str, shell: ShellName) -> str:
    """Return the line that puts a folder on PATH, for this window alone or, if the shell has one, for good.

    Args:
        folder: The folder.
        shell: The shell that the line is pasted into.
    """
    if shell == "cmd":
        word = visible(folder)
    else:
        word = _value(folder, shell)
    return _ON_PATH.get(shell, "export PATH={}:$PATH").format(word)
