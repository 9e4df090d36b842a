"""A message to look for, written as people quote it, found however a terminal or a log has broken it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

SHORTEST_UNWRAPPED = 10
# A word ends where other letters follow: 显卡RTX 5090上.
FLAGS = re.MULTILINE | re.ASCII
# Nothing repeats without end, so that no text can keep a pattern busy: a word, a path, a line's rest.
_SIGNS = re.compile(r"(\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|\.)([*+]?)")
_LONGEST = {r"\w": 24, r"\d": 24, r"\W": 12, "[": 160}
_LONGEST_OF_OTHERS = 100
_ESCAPED = 0xE000


@dataclass(frozen=True)
class Pattern:
    """A message to look for, in lower case: a space stands for any break, an ellipsis for anything up to a line's end.

    The rest is a regular expression. Before it is tried, the texts that every match contains are looked for.
    """

    says: str

    @cached_property
    def contains(self) -> tuple[tuple[str, ...], ...]:
        """Of each of these one is in every match, spaces left out; the first are the most telling."""
        escaped = re.sub(r"\\([^\w\s])", lambda sign: chr(_ESCAPED + ord(sign[1])), self.says)
        plain = re.sub(r" [?+]?", "", re.sub(r"\[[^\]]*\]", "\0", escaped))
        outside, groups = _groups(plain)
        longest = (tuple(max(_fixed(part), key=len) for part in group) for group in groups)
        choices = [*((part,) for part in _fixed(outside)), *longest]
        telling = (choice for choice in choices if all(choice))
        return tuple(sorted(telling, key=lambda choice: -min(map(len, choice))))

    @property
    def reads_value(self) -> bool:
        """Whether the pattern has a group that names what it finds."""
        return "(?P<it>" in self.says

    @property
    def needles(self) -> tuple[str, ...]:
        """The texts that are looked for first."""
        return self.contains[0]

    @cached_property
    def wrapped(self) -> re.Pattern[str]:
        """The pattern where spaces may be line breaks."""
        gap = _bounded(self.says).replace("…", r"[^\n]{0,160}?")
        return re.compile(
            gap.replace(" ?", r"\s*").replace(" +", r"\s+").replace(" ", r"\s+"), FLAGS
        )

    @cached_property
    def squashed(self) -> re.Pattern[str] | None:
        """The pattern for text without spaces, for words cut by a terminal's edge; None where it is too short."""
        if min(map(len, self.needles)) < SHORTEST_UNWRAPPED or self.says[:1] == "^":
            return None
        gap = _bounded(self.says).replace("…", ".{0,120}?").replace(r"[^\n]", ".")
        return re.compile(
            re.sub(r" [?+]?", "", gap.replace(r"\b", "").replace(r"\S{", ".{")), FLAGS
        )


def _bounded(says: str) -> str:
    """Give each repeat of a sign an end; what an ellipsis follows is part of it."""
    return _SIGNS.sub(_with_an_end, re.sub(r"\\[Sw]\* ?…", "…", says))


def _with_an_end(sign: re.Match[str]) -> str:
    """Bound what follows a sign or a class of signs; inside a class nothing repeats, and a space is any break."""
    plain = sign[1].replace(" ", r"\s") if sign[1][0] == "[" else sign[1]
    most = _LONGEST.get(sign[1] if sign[1][0] == "\\" else sign[1][0], _LONGEST_OF_OTHERS)
    return f"{plain}{{{int(sign[2] == '+')},{most}}}" if sign[2] else plain


def _groups(plain: str) -> tuple[str, list[list[str]]]:
    """Part a pattern into what stands outside its groups and the alternatives of each group that must match."""
    outside, groups, depth = "", [], 0
    for index, sign in enumerate(plain):
        depth += (sign == "(") - (sign == ")")
        if sign == "(" and depth == 1:
            alternatives = [""]
        elif sign == ")" and depth == 0:
            outside += "\0"
            if plain[index + 1 : index + 2] not in ("?", "*", "{") and not alternatives[
                0
            ].startswith("?"):
                groups.append(alternatives)
        elif depth == 0:
            outside += sign
        elif sign == "|" and depth == 1:
            alternatives.append("")
        else:
            alternatives[-1] += sign if depth == 1 and sign != ")" else "\0"
    return outside, groups


def _fixed(plain: str) -> list[str]:
    parts = re.split(r"(?:\\[a-zA-Z]|.)(?:[?*]|\{[^}]*\})|\\[a-zA-Z]|[\0.^$…+]", plain)
    return [
        "".join(chr(ord(sign) - _ESCAPED) if sign >= chr(_ESCAPED) else sign for sign in part)
        for part in parts
    ]
