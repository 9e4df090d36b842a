"""Quote words and commands for POSIX shells, PowerShell, and cmd."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from gpuinstall.base.text import sanitize

if TYPE_CHECKING:
    from pathlib import Path

ShellName = Literal["sh", "powershell", "cmd"]
_PLAIN = r"(?a)(?!=)[\w@%+=:,./-]+"
_PLAIN_ON_WINDOWS = r"(?a)[\w.:\\/+=-]+"


def quote_word(word: Path | str, shell: ShellName = "sh") -> str:
    """Quote text as one shell word that can be pasted.

    Unprintable characters, such as line breaks, are escaped, so that they cannot run a
    command when pasted.

    Args:
        word: The text.
        shell: The shell.
    """
    text = str(word)
    plain = _PLAIN if shell == "sh" else _PLAIN_ON_WINDOWS
    return text if re.fullmatch(plain, text) else quote_literal(sanitize(text), shell)


def quote_literal(word: Path | str, shell: ShellName) -> str:
    """Quote text as one shell word in a script."""
    text = str(word)
    if shell == "powershell":
        # PowerShell also accepts typographic quotes.
        doubled = re.sub("(['‘’‚‛])", r"\1\1", text)
        return f"'{doubled}'"
    if shell == "cmd":
        doubled = text.replace('"', '""')
        return f'"{doubled}"'
    # shlex.quote writes =ls without quotes, which zsh expands.
    escaped = text.replace("'", r"'\''")
    return f"'{escaped}'"


def format_activation(venv: str, shell: ShellName, *, windows: bool) -> str:
    """Return the command that activates an environment.

    Args:
        venv: The folder, absolute or relative to the working folder.
        shell: The shell.
        windows: Whether the environment has a Scripts folder.
    """
    folder = "\\Scripts\\" if windows else "/bin/"
    if shell == "sh":
        return f". {quote_word(f'{venv}{folder}activate', shell)}"
    path = f"{venv}{folder}activate.{'bat' if shell == 'cmd' else 'ps1'}"
    file = quote_word(path, shell)
    # PowerShell prints a quoted word instead of running it.
    return file if file == path or shell == "cmd" else f"& {file}"


def format_path_command(folder: str, shell: ShellName) -> str:
    """Return the command that adds a folder to PATH in the user's shell."""
    if shell == "powershell":
        # PowerShell would run a word without quotes.
        word = quote_literal(folder, shell)
        return f"$env:PATH = {word} + [IO.Path]::PathSeparator + $env:PATH"
    if shell == "cmd":
        return f'set "PATH={folder};%PATH%"'
    return f"export PATH={quote_word(folder, shell)}:$PATH"
