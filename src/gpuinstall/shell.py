"""The shell that a person types into, and a text as one word of it, whatever the text holds.

What is printed for a shell is one line of printable characters. What is written for no shell in particular is the same
word in sh, bash, zsh and fish where the text can be printed; else bash and zsh read it, and no other runs any of it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from gpuinstall.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ShellName = Literal["sh", "bash", "zsh", "fish", "nu", "powershell", "cmd"]
_PLAIN = re.compile(r"(?!=)[\w@%+=:,./-]+", re.ASCII)
_PLAIN_ON_WINDOWS = re.compile(r"[\w.:\\/+=-]+", re.ASCII)


def this_shell(environ: Mapping[str, str], parent: str | None = None) -> ShellName:
    """Name the shell: the program that started us, as far as that is told, else what the variables say."""
    names: dict[str, ShellName] = {"dash": "sh", "pwsh": "powershell", **{name: name for name in get_args(ShellName)}}
    if parent in names:
        return names[parent]
    if "NU_VERSION" in environ:
        return "nu"
    if os.name == "nt":
        return "powershell" if len(environ.get("PSModulePath", "").split(";")) > 2 else "cmd"
    return names.get(Path(environ.get("SHELL", "sh")).name, "sh")


def parent_program() -> str | None:
    """The name of the program that started us, where the system tells it."""
    with suppress(OSError):
        return Path(f"/proc/{os.getppid()}/comm").read_text(encoding="utf-8").strip()
    return None


def quoted(word: Path | str, shell: ShellName | None = None) -> str:
    """Write a text as one word of a shell; without one, of the shells of this system."""
    text = str(word)
    if shell is None and os.name == "nt":
        shell = this_shell(os.environ)
    plain = _PLAIN_ON_WINDOWS if shell in {"nu", "powershell", "cmd"} else _PLAIN
    if plain.fullmatch(text):
        return text
    writers = {"sh": _sh, "fish": _fish, "nu": _nu, "powershell": _powershell, "cmd": _cmd}
    return writers.get(shell or "", _bash)(text)


def joined(words: Iterable[Path | str], shell: ShellName | None = None) -> str:
    """Write a command line."""
    return " ".join(quoted(word, shell) for word in words)


def _printable(text: str) -> str:
    """Write what can be printed: a backslash before ``'`` and before another one means the same in all four."""
    parts = re.split(r"([\\'])", text)
    return "".join(f"\\{part}" if part in {"\\", "'"} else f"'{part}'" for part in parts if part) or "''"


def _sh(text: str) -> str:
    return _printable(text) if text.isprintable() else f"\"$(printf -- '{_octal(text).replace('%', '%%')}')\""


def _bash(text: str) -> str:
    return _printable(text) if text.isprintable() else f"$'{_octal(text)}'"


def _fish(text: str) -> str:
    parts = re.split(r"([^ -~]+)", text)
    return "".join(
        _printable(part) if part.isprintable() else "".join(f"\\X{byte:02x}" for byte in _bytes(part))
        for part in parts
        if part
    )


def _nu(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(mark if mark.isprintable() else f"\\u{{{ord(mark):x}}}" for mark in escaped) + '"'


def _powershell(text: str) -> str:
    """Quotation marks as typesetters have them end a text too."""
    if text.isprintable():
        return "'" + re.sub("(['‘’‚‛])", r"\1\1", text) + "'"
    raw = text.encode("utf-16-le", "surrogatepass")
    units = (f"[char]{raw[at] + 256 * raw[at + 1]}" for at in range(0, len(raw), 2))
    return f"(-join ({', '.join(units)}))"


def _cmd(text: str) -> str:
    return '"' + visible(text).replace('"', '""') + '"'


def _octal(text: str) -> str:
    """Write what cannot be printed, and what would end or bend a text in quotes, as bytes of three digits each."""
    return "".join(
        mark if mark.isprintable() and mark not in "!\\'" else "".join(f"\\{byte:03o}" for byte in _bytes(mark))
        for mark in text
    )


def _bytes(text: str) -> bytes:
    """The bytes of a text; one that a file's name has and that is no text is itself."""
    return b"".join(
        mark.encode("utf-8", "surrogateescape" if "\udc80" <= mark <= "\udcff" else "surrogatepass") for mark in text
    )
