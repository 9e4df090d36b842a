"""The shell that a person types into: a text as one word of it, whatever the text holds, and the lines that it wants.

What is printed for a shell is one line of printable characters. What is written for no shell in particular is the same
word in sh, bash, zsh and fish where the text can be printed; else bash and zsh read it, and no other runs any of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from gpuinstall.text import visible

ShellName = Literal["sh", "bash", "zsh", "fish", "nu", "powershell", "cmd"]
Shell = Literal["sh", "bash", "zsh", "fish", "powershell"]
"""The shells that variables are written for."""
COMPLETED = ("bash", "zsh", "fish")
"""The shells that completion is written for."""
_PLAIN = re.compile(r"(?!=)[\w@%+=:,./-]+", re.ASCII)
_PLAIN_ON_WINDOWS = re.compile(r"[\w.:\\/+=-]+", re.ASCII)


def this_shell(environ: Mapping[str, str], parent: str | None = None) -> ShellName:
    """Name the shell: the program that started us, as far as that is told, else what the variables say."""
    names: dict[str, ShellName] = {
        "dash": "sh",
        "pwsh": "powershell",
        **{name: name for name in get_args(ShellName)},
    }
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


def activation(venv: str, shell: ShellName, *, windows: bool) -> str:
    """The line that activates an environment."""
    name = {
        "fish": "activate.fish",
        "nu": "activate.nu",
        "powershell": "activate.ps1",
        "cmd": "activate.bat",
    }
    plain = ("\\Scripts\\" if windows else "/bin/").join((venv, name.get(shell, "activate")))
    file = quoted(plain, shell)
    verb = {
        "nu": "overlay use ",
        "sh": ". ",
        "cmd": "",
        "powershell": "" if file == plain else "& ",
    }
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
    names = {
        "bash": ".bashrc",
        "zsh": ".zshrc",
        "sh": ".profile",
        "fish": ".config/fish/config.fish",
    }
    return {shell: home / name for shell, name in names.items()}


def assignments(variables: Mapping[str, str | None], shell: Shell) -> str:
    """Write variables as lines that a shell evaluates; None ends one."""
    setting = {"fish": "set -gx {} {}", "powershell": "$env:{} = {}"}.get(shell, "export {}={}")
    ending = {"fish": "set -e {}", "powershell": "$env:{} = $null"}.get(shell, "unset {}")
    lines = [
        ending.format(name) if value is None else setting.format(name, _value(value, shell))
        for name, value in variables.items()
    ]
    return "".join(f"{line}\n" for line in lines)


def _value(text: str, shell: ShellName) -> str:
    """PowerShell would run a bare word that stands where it expects a value."""
    word = quoted(text, shell)
    return f"'{word}'" if shell == "powershell" and word == text else word


def _printable(text: str) -> str:
    """Write what can be printed: a backslash before ``'`` and before another one means the same in all four."""
    parts = re.split(r"([\\'])", text)
    return (
        "".join(f"\\{part}" if part in {"\\", "'"} else f"'{part}'" for part in parts if part)
        or "''"
    )


def _sh(text: str) -> str:
    # The shell takes line breaks off the end of a command's output. Only folders have names that end in one.
    if text.endswith("\n"):
        text += "/."
    return (
        _printable(text)
        if text.isprintable()
        else f"\"$(printf -- '{_octal(text).replace('%', '%%')}')\""
    )


def _bash(text: str) -> str:
    return _printable(text) if text.isprintable() else f"$'{_octal(text)}'"


def _fish(text: str) -> str:
    parts = re.split(r"([^ -~]+)", text)
    return "".join(
        _printable(part)
        if part.isprintable()
        else "".join(f"\\X{byte:02x}" for byte in _bytes(part))
        for part in parts
        if part
    )


def _nu(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"'
        + "".join(mark if mark.isprintable() else f"\\u{{{ord(mark):x}}}" for mark in escaped)
        + '"'
    )


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
        mark
        if mark.isprintable() and mark not in "!\\'"
        else "".join(f"\\{byte:03o}" for byte in _bytes(mark))
        for mark in text
    )


def _bytes(text: str) -> bytes:
    """The bytes of a text; one that a file's name has and that is no text is itself."""
    return b"".join(
        mark.encode("utf-8", "surrogateescape" if "\udc80" <= mark <= "\udcff" else "surrogatepass")
        for mark in text
    )
