"""Commands that help people, as values: quoted for the shell in use only where they are printed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuinstall.shell import joined, quoted
from gpuinstall.text import without_logins

NOTE = "   # "
"""What stands between a command and the words about it, which a shell ignores."""
OURS = "gpuinstall"
REQUIREMENTS = "requirements"
"""The argument of a command that takes requirements."""
_OPERATORS = frozenset(("&&", "||", "|", ";"))
_SAME = re.compile(
    r"^the same (?P<change>again|with(?:out)? \S.*?)(?P<note>   # .*)?(?:\n|\Z)", re.MULTILINE
)
_ADDITION = re.compile(r"with (?!\S+ in place of )((?P<option>--[\w-]+)|(?P<requirements>\S.*))")
_OPTION = re.compile(r"(?<=\s)--[\w-]+")
_IN_PLACE = re.compile(r"with (?P<new>\S+) in place of (?P<old>\S.*)")


@dataclass(frozen=True)
class Advice:
    """A command that helps: a program and its arguments, as they are before a shell's quotes.

    ``place`` is the folder that it has to run in, None for any. ``needs`` are further programs that it starts,
    ``note`` says in a few words what it does. As text it is one line that can be pasted.
    """

    program: str
    arguments: tuple[str, ...] = ()
    place: Path | None = None
    needs: tuple[str, ...] = ()
    note: str = ""

    @classmethod
    def parse(cls, line: str) -> Advice | None:
        """Read a line that is one command and nothing else; None for any other."""
        try:
            program, *arguments = shlex.split(line, comments=True, posix=os.name != "nt")
        except ValueError:  # a quote without its other half, or no word at all
            return None
        note = line.partition(NOTE)[2]
        return (
            None
            if _OPERATORS.intersection(arguments)
            else cls(program, tuple(arguments), note=note)
        )

    @property
    def is_possible(self) -> bool:
        """Say whether the programs are on PATH; ours is by whatever name it was started."""
        return all(
            program == OURS or shutil.which(program) for program in (self.program, *self.needs)
        )

    def __str__(self) -> str:
        move = f"cd {quoted(self.place)} && " if self.place and self.place != Path.cwd() else ""
        return move + joined((self.program, *self.arguments)) + (self.note and NOTE + self.note)


def in_full(text: str, words: Sequence[str], options: Container[str] | None = None) -> str:
    """Write each line of advice such as ``the same with --replace`` as the command to run, without a login.

    A change is ``again``, ``with --option VALUE``, ``with NEW in place of OLD`` (requirements or their names), or
    ``without WORDS``. Where the command line does not hold what would go, which then came from a file, the line is a
    sentence.

    Args:
        text: The lines of an advice.
        words: The command line that was run, with the program.
        options: The options and arguments that its command has; what adds another option is left out. None: all
            of them.
    """
    plain = list(map(without_logins, words))

    def command(same: re.Match[str]) -> str:
        change, note = same["change"], same["note"] or ""
        addition = _ADDITION.match(change)
        if addition and options is not None:
            if addition["option"] and any(
                option not in options for option in _OPTION.findall(change)
            ):
                return ""
            if addition["requirements"] and REQUIREMENTS not in options:
                requirements = addition["requirements"]
                if words[1:2] != ["run"]:
                    return f"Request {requirements} too{note.replace(NOTE, ': ', 1)}\n"
                change = " ".join(
                    ["with", *(f"--with {quoted(one)}" for one in shlex.split(requirements))]
                )
        changed = _changed(change, plain)
        if changed is None:
            note = note.replace(NOTE, ": ", 1)
            change = re.sub(r"^with (?=\S+ in place of )", "write ", change)
            changed = change[:1].upper() + change[1:]
        return f"{changed}{note}\n"

    lines = _SAME.sub(command, text)
    return lines if text.endswith("\n") else lines.removesuffix("\n")


def _changed(change: str, words: list[str]) -> str | None:
    """Write a command line with a change; None if it does not hold what the change takes out."""
    if change == "again":
        return joined(words)
    if exchange := _IN_PLACE.fullmatch(change):
        exchanged = [_exchanged(word, exchange["old"], exchange["new"]) for word in words[2:]]
        return None if exchanged == words[2:] else joined([*words[:2], *exchanged])
    if change.startswith("without "):
        removed = change.removeprefix("without ")
        rest = _without(removed, words)
        return None if rest == words else joined(rest)
    added = change.removeprefix("with ")
    option, _, value = added.partition(" ")
    earlier = words
    if (
        option != "--with"
    ):  # a second one adds to the first; any other option replaces what was given before
        earlier = _without(f"{option} *" if value else option, words)
    # What follows the command that "run" starts, or "--", is not for us.
    end = 2 if words[1:2] == ["run"] else earlier.index("--") if "--" in earlier else len(earlier)
    return " ".join(filter(None, (joined(earlier[:end]), added, joined(earlier[end:]))))


def _without(removed: str, words: list[str]) -> list[str]:
    """Take a word out of a command line, or an option with its value, where ``*`` is any."""
    option, _, value = removed.partition(" ")
    if not (option.startswith("-") and value):
        return [
            word
            for word in words
            if _squeezed(removed) not in {_squeezed(word), _squeezed(_name(word))}
        ]
    rest, waiting = list[str](), iter(words)
    for word in waiting:
        name, sign, given = word.partition("=")
        if name != option:
            rest.append(word)
            continue
        given = given if sign else next(waiting, "")
        if value not in ("*", given):
            rest += [word] if sign else [word, given]
    return rest


def _exchanged(word: str, old: str, new: str) -> str:
    """Exchange a requirement, or the name in it."""
    if _squeezed(word) == _squeezed(old):
        return new
    name = _name(word)
    return new + word.removeprefix(name) if _squeezed(name) == _squeezed(old) else word


def _name(requirement: str) -> str:
    """Return the name at the beginning of a requirement; empty for an option or a path."""
    name = re.match(r"[A-Za-z0-9][\w.-]*(?=$|[\s\[@<>=!~;])", requirement)
    return name[0] if name else ""


def _squeezed(word: str) -> str:
    """Write a requirement, or a name, as it is compared."""
    return re.sub(r"[-_.]+", "-", re.sub(r"\s", "", word)).lower()
