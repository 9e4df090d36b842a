"""The shell that a person types into: a text as one word of it, whatever the text holds, and the lines that it wants.

What is printed for a shell is one line of printable characters. What is written for no shell in particular is the same
word in sh, bash, zsh and fish if the text can be printed; else bash and zsh read it, and no other runs any of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from gpuinstall.base.text import visible

ShellName = Literal["sh", "bash", "zsh", "fish", "nu", "powershell", "cmd"]
Shell = Literal["sh", "bash", "zsh", "fish", "powershell"]
"""The shells that variables are written for."""
_PLAIN = re.compile(r"(?!=)[\w@%+=:,./-]+", re.ASCII)
_PLAIN_ON_WINDOWS = re.compile(r"[\w.:\\/+=-]+", re.ASCII)


def this_shell(environ: Mapping[str, str], parent: str | None = None) -> ShellName:
    """Return the shell: the program that started us, as far as that is told, else what the variables say."""
    names: dict[str, ShellName] = {name: name for name in get_args(ShellName)}
    names["dash"] = "sh"
    names["pwsh"] = "powershell"
    if parent in names:
        return names[parent]
    if "NU_VERSION" in environ:
        return "nu"
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
    """Return a text as one word of a shell; without one, of the shells of this system."""
    text = str(word)
    if shell is None and os.name == "nt":
        shell = this_shell(os.environ)
    plain = _PLAIN_ON_WINDOWS if shell in {"nu", "powershell", "cmd"} else _PLAIN
    if plain.fullmatch(text):
        return text
    writers = {
        "sh": _sh,
        "fish": _fish,
        "nu": _nu,
        "powershell": _powershell,
        "cmd": _cmd,
    }
    write = writers.get(shell or "", _bash)
    return write(text)


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
    scripts = {
        "fish": "activate.fish",
        "nu": "activate.nu",
        "powershell": "activate.ps1",
        "cmd": "activate.bat",
    }
    folder = "\\Scripts\\" if windows else "/bin/"
    path = f"{venv}{folder}{scripts.get(shell, 'activate')}"
    file = quoted(path, shell)
    match shell:
        case "cmd":
            return file
        case "powershell":
            return file if file == path else f"& {file}"
        case "nu":
            return f"overlay use {file}"
        case "sh":
            return f". {file}"
        case _:
            return f"source {file}"


def on_path(folder: str, shell: ShellName) -> str:
    """Return the line that puts a folder on PATH, for this window alone or, if the shell has one, for good."""
    word = _value(folder, shell)
    match shell:
        case "cmd":
            return f'set "PATH={visible(folder)};%PATH%"'
        case "fish":
            return f"fish_add_path {word}"
        case "nu":
            return f"$env.PATH = ($env.PATH | prepend {word})"
        case "powershell":
            return f"$env:PATH = {word} + [IO.Path]::PathSeparator + $env:PATH"
        case _:
            return f"export PATH={word}:$PATH"


def assignments(variables: Mapping[str, str | None], shell: Shell) -> str:
    """Return variables as lines that a shell evaluates; None ends one."""
    setting = "export {}={}"
    ending = "unset {}"
    if shell == "fish":
        setting = "set -gx {} {}"
        ending = "set -e {}"
    elif shell == "powershell":
        setting = "$env:{} = {}"
        ending = "$env:{} = $null"
    lines = []
    for name, value in variables.items():
        if value is None:
            lines.append(ending.format(name))
        else:
            lines.append(setting.format(name, _value(value, shell)))
    return "".join(f"{line}\n" for line in lines)


def _value(text: str, shell: ShellName) -> str:
    """Return a word that stands for itself: PowerShell would run a bare one if it expects a value."""
    word = quoted(text, shell)
    is_bare = shell == "powershell" and word == text
    return f"'{word}'" if is_bare else word


def _printable(text: str) -> str:
    """Return what can be printed: a backslash before ``'`` and before another one means the same in all four."""
    words = []
    for part in re.split(r"([\\'])", text):
        if part in {"\\", "'"}:
            words.append(f"\\{part}")
        elif part:
            words.append(f"'{part}'")
    return "".join(words) or "''"


def _sh(text: str) -> str:
    # The shell takes line breaks off the end of a command's output. Only folders have names that end in one.
    if text.endswith("\n"):
        text += "/."
    if text.isprintable():
        return _printable(text)
    form = _octal(text).replace("%", "%%")
    return f"\"$(printf -- '{form}')\""


def _bash(text: str) -> str:
    if text.isprintable():
        return _printable(text)
    return f"$'{_octal(text)}'"


def _fish(text: str) -> str:
    words = []
    for part in re.split(r"([^ -~]+)", text):
        if not part.isprintable():
            words += [f"\\X{byte:02x}" for byte in _bytes(part)]
        elif part:
            words.append(_printable(part))
    return "".join(words)


def _nu(text: str) -> str:
    marks = []
    for mark in text:
        if mark in '\\"':
            marks.append(f"\\{mark}")
        elif mark.isprintable():
            marks.append(mark)
        else:
            marks.append(f"\\u{{{ord(mark):x}}}")
    return f'"{"".join(marks)}"'


def _powershell(text: str) -> str:
    """Return a text in quotation marks; those that typesetters use end a text too."""
    if text.isprintable():
        doubled = re.sub("(['‘’‚‛])", r"\1\1", text)
        return f"'{doubled}'"
    raw = text.encode("utf-16-le", "surrogatepass")
    units = []
    for at in range(0, len(raw), 2):
        unit = int.from_bytes(raw[at : at + 2], "little")
        units.append(f"[char]{unit}")
    return f"(-join ({', '.join(units)}))"


def _cmd(text: str) -> str:
    escaped = visible(text).replace('"', '""')
    return f'"{escaped}"'


def _octal(text: str) -> str:
    """Return what cannot be printed, and what would end or bend a text in quotes, as bytes of three digits each."""
    marks = []
    for mark in text:
        if mark.isprintable() and mark not in "!\\'":
            marks.append(mark)
        else:
            marks += [f"\\{byte:03o}" for byte in _bytes(mark)]
    return "".join(marks)


def _bytes(text: str) -> bytes:
    """Return the bytes of a text; one that a file's name has and that is no text is itself."""
    raw = b""
    for mark in text:
        is_byte = "\udc80" <= mark <= "\udcff"
        raw += mark.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    return raw
