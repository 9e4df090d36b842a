"""Commands in hints, which are quoted for a shell when printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.shell import ShellName, quote_literal, quote_word
from gpuinstall.base.text import redact
from gpuinstall.base.values import Value, replace

if TYPE_CHECKING:
    from pathlib import Path

NOTE = "   # "
"""The separator between a command and its note, which a shell ignores."""
CMD_NOTE = "   & rem "
"""The separator in cmd, which has no other comment after a command."""
PROGRAM = "gpuinstall"
_IN_CMD = {"mv": "move", "rm": "del"}
"""Programs that PowerShell also has as aliases, by their names in cmd."""
_REQUESTING = {"", "--requirement", "--editable", "--group", "--extra"}
"""The options that request packages, and "" for an argument."""
_OTHER_MACHINE = {"--machine", "--gpu", "--driver", "--os", "--arch", "--target"}
"""The options of ``lock`` and ``plan`` that select another machine."""
_IDENTIFYING = {
    *("--machine", "--gpu", "--driver", "--os", "--arch", "--glibc"),
    *("--venv", "--into", "--lock"),
    *("--torch-index", "--index", "--default-index", "--find-links"),
}
"""The options that identify the machine, environment, lock, and sources."""


class ShellText(str):
    """Words of a command that are already quoted, or shell code."""

    __slots__ = ()


class Advice(Value):
    """Command in a hint: another one, or this run's with changed arguments."""

    program: str = ""
    """The program. Empty: the command line of this run is changed."""
    arguments: tuple[str, ...] = ()
    """The unquoted words of another command, or the words to add."""

    place: str = ""
    """The folder in which to run the command. Empty: any folder."""

    note: str = ""
    """A short description of the command's effect."""

    removed: tuple[str, ...] = ()
    """The words to remove: a requirement, or options with their values."""

    def __str__(self) -> str:
        if self.program:
            return self.format()
        change = f"with {_join(self.arguments)}"
        if self.removed:
            before = "without"
            if self.arguments:
                before = f"{change} instead of"
            change = f"{before} {_join(self.removed)}"
        return f"Run it again {redact(change)}{self._add_note(': ')}"

    def format(
        self,
        shell: ShellName = "sh",
        locate: Callable[[str], str] = str,
    ) -> str:
        """Format another command as one line to paste into a shell.

        Args:
            shell: The shell.
            locate: Returns the name or path that starts a program.
        """
        program = self.program
        if shell == "cmd":
            program = _IN_CMD.get(program, program)
        if not isinstance(program, ShellText):
            program = quote_word(locate(program), shell)
        if shell == "powershell" and program.startswith("'"):
            # PowerShell prints a quoted word instead of running it.
            program = f"& {program}"
        line = _join((ShellText(program), *self.arguments), shell)
        if self.program == "export" and type(self.arguments[0]) is str:
            line = _format_export(self.arguments, shell)
        if self.place:
            then = ";" if shell == "powershell" else " &&"
            change = "cd /d" if shell == "cmd" else "cd"
            line = f"{change} {quote_word(self.place, shell)}{then} {line}"
        return redact(line) + self._add_note(CMD_NOTE if shell == "cmd" else NOTE)

    def _add_note(self, separator: str) -> str:
        return f"{separator}{self.note}" if self.note else ""

    def apply(
        self,
        command: Sequence[str],
        rest: Sequence[str] = (),
        options: Mapping[str, bool] | None = None,
    ) -> Advice | None:
        """Apply changes of arguments to a command line.

        Args:
            command: The words of the command line before added words.
            rest: The words after added words, such as a program to run.
            options: The options of the command, and whether they have a value. None allows
                all options.

        Returns:
            Another command. None if it is the same, has no request, or has an unknown option.
        """
        if self.program:
            return self
        removed = _split_words(self.removed, options)
        added = _split_words(self.arguments, options)
        named = {part.name for part in (*removed, *added)} - {""}
        if options is not None and not named <= options.keys():
            return None
        is_replaced = "--only" in named
        changed = named | _REQUESTING if is_replaced else named - _REQUESTING
        typed = _split_words(command[2:], options)
        dropped = {part.text for part in removed}
        kept = [
            part
            for part in typed
            if part.name not in changed and part.text not in dropped
        ]
        is_removed = len(kept) < len(typed)
        kept += added
        words = (*command[:2], *(word for part in kept for word in part.words), *rest)
        if not (is_replaced or all(part.name for part in removed)):
            has_request = any(part.name in _REQUESTING for part in kept)
            if not (is_removed and has_request):
                return None
        if words == (*command, *rest):
            return None
        return Advice(words[0], words[1:], note=self.note)

    def keep_options(
        self,
        command: Sequence[str],
        options: Mapping[str, bool],
        accepted: Mapping[str, bool],
        *,
        depth: int,
        venv: Collection[str] = (),
    ) -> Advice | None:
        """Keep the options that identify the machine and files of a command.

        Args:
            command: The words of the command line.
            options: The options of the command line, and whether they have a value.
            accepted: The options of this hint's command.
            depth: The number of words in the name of this hint's command.
            venv: The paths of the command line's environment.

        Returns:
            The hint. None if it is the same command, or is for this machine, but the
            command line for another one.
        """
        typed = _split_words(command[2:], options)
        is_for_others = "--gpu" in options and _OTHER_MACHINE & _list_options(command)
        if is_for_others and "--venv" in accepted:
            return None
        name, words = self.arguments[:depth], self.arguments[depth:]
        own = _split_words(words, accepted)
        if (*command[1:2],) == name and _omit_venv(own, venv) == _omit_venv(
            typed, venv
        ):
            return None
        kept = [
            word
            for part in typed
            if part.name in _IDENTIFYING & accepted.keys() - _list_options(words)
            for word in part.words
        ]
        return replace(self, arguments=(*name, *kept, *words))


Hint = Advice | str
"""A command, or a sentence about a step that is not one."""


def make_command(command: str, *words: str, note: str = "", place: str = "") -> Advice:
    """Return a hint with a command of gpuinstall.

    Args:
        command: The fixed words of the command, separated by blanks.
        words: The other words, which can contain blanks.
        note: A short description of the effect.
        place: The folder in which to run the command. Empty: any folder.
    """
    return Advice(PROGRAM, (*command.split(), *words), place, note)


def make_change(*added: str, note: str = "", without: Sequence[str] = ()) -> Advice:
    """Return a hint to change the arguments of this run's command line."""
    return Advice(arguments=added, note=note, removed=tuple(without))


def make_shell_line(line: str, note: str = "") -> Advice:
    """Return a hint with a line for a POSIX shell.

    A command without shell code is formatted for the user's shell.
    """
    if not re.search(r"[|&;<>$`~*{…\"\\]", re.sub("'[^']*'", "", line)):
        program, *words = shlex.split(line)
        return Advice(program, tuple(words), note=note)
    program, _, rest = line.partition(" ")
    if quote_word(program) != program:
        program = ShellText(program)
    return Advice(program, (ShellText(rest),), note=note)


def read_hint(line: str) -> Hint:
    """Read a line of a document: a sentence, or a command with a note."""
    first = line.partition(" ")[0]
    if first[:1].isupper() and "=" not in first:
        return line
    command, _, note = line.partition(NOTE)
    return make_shell_line(command, note)


def environment_advice(venv: Path | str, *words: str, place: str = "") -> Advice:
    """Return a hint with a gpuinstall command for an environment.

    Args:
        venv: The folder of the environment.
        words: The command.
        place: The folder in which to run the command. Empty: any folder.
    """
    return Advice(PROGRAM, (*words, "--venv", str(venv)), place)


def apply_to_install(
    hints: Iterable[Hint], words: Sequence[str] = ()
) -> tuple[Hint, ...]:
    """Apply hints to ``gpuinstall install``.

    Args:
        hints: The hints of an error.
        words: Arguments of the command, such as the environment.
    """
    command = (PROGRAM, "install", *words)
    applied = (one if isinstance(one, str) else one.apply(command) for one in hints)
    return tuple(one for one in applied if one)


def list_commands(
    hints: Iterable[Hint], print_hint: Callable[[Hint], str] = str
) -> list[str]:
    """Return the commands among hints, without notes, for a document."""
    return [
        print_hint(replace(one, note=""))
        for one in hints
        if isinstance(one, Advice) and one.program
    ]


def _format_export(settings: Sequence[str], shell: ShellName) -> str:
    if shell == "cmd":
        return " & ".join(f'set "{setting}"' for setting in settings)
    pairs = [setting.split("=", 1) for setting in settings]
    if shell == "powershell":
        return "; ".join(
            f"$env:{name} = {quote_literal(value, shell)}" for name, value in pairs
        )
    return "export " + " ".join(f"{name}={quote_word(value)}" for name, value in pairs)


def _join(words: Iterable[str], shell: ShellName = "sh") -> str:
    return " ".join(
        word if isinstance(word, ShellText) else quote_word(word, shell)
        for word in words
    )


class _Part(NamedTuple):
    """Option with its value, or an argument without a name."""

    name: str
    words: Sequence[str]

    @property
    def text(self) -> str:
        """The part as one word, such as ``--extra=cpu``."""
        return "=".join(self.words)


def _split_words(
    words: Sequence[str], options: Mapping[str, bool] | None
) -> list[_Part]:
    """Split the words of a command line into options and arguments.

    Args:
        words: The words.
        options: Whether each option has a value. None: it has one if a word follows.
    """
    parts = []
    rest = list(words)
    while rest:
        name, equals, _ = rest[0].partition("=")
        if not name.startswith("-"):
            name = ""
        has_value = len(rest) > 1 and not rest[1].startswith("-")
        if options is not None:
            has_value = options.get(name, False)
        end = 2 if name and has_value and not equals else 1
        parts.append(_Part(name, rest[:end]))
        del rest[:end]
    return parts


def _omit_venv(parts: Iterable[_Part], venv: Collection[str]) -> list[_Part]:
    """Return the parts of a command line, except a path of the environment."""
    return [
        part
        for part in parts
        if part.name != "--venv" or part.words[-1].removeprefix("--venv=") not in venv
    ]


def _list_options(words: Sequence[str]) -> set[str]:
    """Return the names of the options in a command line."""
    return {word.partition("=")[0] for word in words if word.startswith("-")}
