"""Commands that help people, as values: quoted for the shell in use only when they are printed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Container, Sequence
from pathlib import Path

from gpuinstall.regex import regex
from gpuinstall.shell import joined, quoted
from gpuinstall.text import without_logins
from gpuinstall.values import dataclass

NOTE = "   # "
"""What stands between a command and the words about it, which a shell ignores."""
OURS = "gpuinstall"
REQUIREMENTS = "requirements"
"""The argument of a command that takes requirements."""
_OPERATORS = frozenset(("&&", "||", "|", ";"))
_SAME = regex(
    r"^the same (?P<change>again|with(?:out)? \S.*?)(?P<note>   # .*)?(?:\n|\Z)", re.MULTILINE
)
_ADDITION = regex(r"with (?!\S+ in place of )((?P<option>--[\w-]+)|(?P<requirements>\S.*))")
_OPTION = regex(r"(?<=\s)--[\w-]+")
_IN_PLACE = regex(r"with (?P<new>\S+) in place of (?P<old>\S.*)")


@dataclass(frozen=True)
class Advice:
    """A command that helps. As text it is one line that can be pasted."""

    program: str
    arguments: tuple[str, ...] = ()
    """As they are before a shell's quotes."""

    place: Path | None = None
    """The folder that it has to run in; None: any."""

    needs: tuple[str, ...] = ()
    """Further programs that it starts."""

    note: str = ""
    """What it does, in a few words."""

    @classmethod
    def parse(cls, line: str) -> Advice | None:
        """Return a line that is one command and nothing else; None for any other."""
        try:
            program, *arguments = shlex.split(
                line,
                comments=True,
                posix=os.name != "nt",
            )
        except ValueError:  # a quote without its other half, or no word at all
            return None
        if not _OPERATORS.isdisjoint(arguments):
            return None
        _, _, note = line.partition(NOTE)
        return cls(program, tuple(arguments), note=note)

    @property
    def is_possible(self) -> bool:
        """Whether the programs are on PATH; ours is by whatever name it was started."""
        from shutil import which

        programs = {self.program, *self.needs} - {OURS}
        return all(map(which, programs))

    def __str__(self) -> str:
        line = joined((self.program, *self.arguments))
        if self.place and self.place != Path.cwd():
            line = f"cd {quoted(self.place)} && {line}"
        return f"{line}{NOTE}{self.note}" if self.note else line


def in_full(
    text: str,
    words: Sequence[str],
    options: Container[str] | None = None,
) -> str:
    """Write each line of advice such as ``the same with --replace`` as the command to run, without a login.

    A change is ``again``, ``with --option VALUE``, ``with NEW in place of OLD`` (requirements or their names), or
    ``without WORDS``. If the command line does not hold what would go, which then came from a file, the line is a
    sentence.

    Args:
        text: The lines of an advice.
        words: The command line that was run, with the program.
        options: The options and arguments that its command has; what adds another option is left out. None: all
            of them.
    """
    own_words = list(map(without_logins, words))

    def command(same: re.Match[str]) -> str:
        note = same["note"] or ""
        sentence_note = note.replace(NOTE, ": ", 1)
        change = same["change"]
        addition = _ADDITION.match(change)
        if addition and options is not None:
            if addition["option"]:
                for option in _OPTION.findall(change):
                    if option not in options:
                        return ""
            elif REQUIREMENTS not in options:
                requirements = addition["requirements"]
                if not _is_run(words):
                    return f"Request {requirements} too{sentence_note}\n"
                added = [f"--with {quoted(name)}" for name in shlex.split(requirements)]
                change = " ".join(["with", *added])
        changed = _changed(change, own_words)
        if changed is not None:
            return f"{changed}{note}\n"
        sentence = re.sub(r"^with (?=\S+ in place of )", "write ", change)
        return f"{sentence[:1].upper()}{sentence[1:]}{sentence_note}\n"

    lines = _SAME.sub(command, text)
    if text.endswith("\n"):
        return lines
    return lines.removesuffix("\n")


def _is_run(words: Sequence[str]) -> bool:
    return words[1:2] == ["run"]


def _changed(change: str, words: list[str]) -> str | None:
    """Return a command line with a change; None if it does not hold what the change takes out."""
    if change == "again":
        return joined(words)
    exchange = _IN_PLACE.fullmatch(change)
    if exchange:
        rest = words[:2]
        old = exchange["old"]
        new = exchange["new"]
        rest += [_exchanged(word, old, new) for word in words[2:]]
        return None if rest == words else joined(rest)
    if change.startswith("without "):
        rest = _without(change.removeprefix("without "), words)
        return None if rest == words else joined(rest)
    added = change.removeprefix("with ")
    option, _, value = added.partition(" ")
    # A second --with adds to the first; any other option replaces what was given before.
    if option != "--with":
        words = _without(f"{option} *" if value else option, words)
    # What follows the command that "run" starts, or "--", is not for us.
    end = len(words)
    if _is_run(words):
        end = 2
    elif "--" in words:
        end = words.index("--")
    parts = [joined(words[:end]), added, joined(words[end:])]
    return " ".join(filter(None, parts))


def _without(removed: str, words: list[str]) -> list[str]:
    """Return a command line without a word, or without an option with its value, of which ``*`` is any."""
    option, _, value = removed.partition(" ")
    if not value or not option.startswith("-"):
        name = _squeezed(removed)
        others = [word for word in words if _squeezed(word) != name]
        return [word for word in others if _squeezed(_name(word)) != name]
    rest = []
    remaining = iter(words)
    for word in remaining:
        name, sign, given = word.partition("=")
        written = [word]
        if name == option:
            if not sign:
                given = next(remaining, "")
                written.append(given)
            if value in {"*", given}:
                continue
        rest += written
    return rest


def _exchanged(
    word: str,
    old: str,
    new: str,
) -> str:
    """Return a word with another requirement in it, or with another name."""
    if _squeezed(word) == _squeezed(old):
        return new
    name = _name(word)
    if _squeezed(name) == _squeezed(old):
        return new + word.removeprefix(name)
    return word


def _name(requirement: str) -> str:
    """Return the name at the beginning of a requirement; empty for an option or a path."""
    name = re.match(r"[A-Za-z0-9][\w.-]*(?=$|[\s\[@<>=!~;])", requirement)
    return name[0] if name else ""


def _squeezed(word: str) -> str:
    """Return a requirement, or a name, as it is compared."""
    without_blanks = re.sub(r"\s", "", word)
    return re.sub(r"[-_.]+", "-", without_blanks).lower()
