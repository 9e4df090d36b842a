"""Quote words and commands for POSIX shells, PowerShell, and cmd."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from gpuinstall.base.text import sanitize

if TYPE_CHECKING:
    from pathlib import Path

ShellName = Literal["sh", "powershell", "cmd"]
_PLAIN = r"(?a)(?!=)[\w@%+=:,./-]+"
_PLAIN_ON_WINDOWS = r"(?a)[\w.:\\/+=-]+"


def quote_word(word: Path | str, shell: ShellName | None = None) -> str:
    """Quote text as one shell word that can be pasted.

    Unprintable characters, such as line breaks, are escaped, so that they cannot run a
    command when pasted.

    Args:
        word: The text.
        shell: The shell. None: the default of this system.
    """
    text = str(word)
    if shell is None:
        shell = "powershell" if sys.platform == "win32" else "sh"
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


def join_command(words: Iterable[Path | str]) -> str:
    """Quote words, and join them into a command line."""
    return " ".join(map(quote_word, words))


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
