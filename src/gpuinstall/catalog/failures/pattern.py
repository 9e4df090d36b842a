"""A message to look for, written as people quote it, found however a terminal or a log has broken it."""

from __future__ import annotations

import re
from functools import cached_property

from gpuinstall.base.regex import regex
from gpuinstall.base.values import dataclass

SHORTEST_SQUASHED = 10
"""Characters: without spaces, what is shorter may stand across two words by chance."""
# A word ends where other letters follow: 显卡RTX 5090上.
FLAGS = re.MULTILINE | re.ASCII
# Nothing repeats without end, so that no text can keep a pattern busy: a word, a path, a line's rest.
_CHARACTERS = regex(r"(\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|\.)([*+]?)")
_LONGEST = {
    r"\w": 24,
    r"\d": 24,
    r"\W": 12,
    "[": 160,
}
_LONGEST_OF_OTHERS = 100
# What has another form if there are neither spaces nor lines.
_SQUASHED = {
    "…": ".{0,120}?",
    r"[^\n]": ".",
    r"\b": "",
    r"\S{": ".{",
}
_VARIES = "\0"
"""Stands in a pattern for what differs from match to match."""
_VARYING = regex(r"(?:\\[a-zA-Z]|.)(?:[?*]|\{[^}]*\}\??)|\\[a-zA-Z]|[\0.^$…+]")
# An escaped character is moved to these code points of no alphabet while the pattern is taken apart.
_ESCAPED = 0xE000
_UNESCAPED = {_ESCAPED + code: code for code in range(128)}


@dataclass(frozen=True)
class Pattern:
    """A message to look for. Before it is tried, the texts that every match contains are looked for."""

    says: str
    """In lower case: a space stands for any break, an ellipsis for anything up to a line's end.

    The rest is a regular expression, with alternatives only in parentheses and at least one fixed text.
    """

    @cached_property
    def required_texts(self) -> tuple[tuple[str, ...], ...]:
        """Sets of alternatives, of each of which every match contains one; the most telling set is the first.

        Spaces are left out: ``(no|without) cuda device`` has ``cudadevice``, and ``no`` or ``without``.

        Raises:
            ValueError: if alternatives stand outside of parentheses.
        """
        # The order matters: an escaped bracket begins no class, and a space in a class is no space of the text.
        text = re.sub(r"\\([^\w\s])", _escaped, self.says)
        text = re.sub(r"\[[^\]]*\]", _VARIES, text)
        text = re.sub(r" [?+]?", "", text)
        outside, groups = _outside_and_groups(text)
        if "|" in outside:
            raise ValueError(f"alternatives without parentheses: {self.says}")
        choices: list[tuple[str, ...]] = [(part,) for part in _fixed(outside)]
        # Of each alternative of a group its longest text.
        for alternatives in groups:
            longest = [max(_fixed(alternative), key=len) for alternative in alternatives]
            choices.append(tuple(longest))
        telling = [choice for choice in choices if all(choice)]
        telling.sort(key=lambda choice: -min(map(len, choice)))
        return tuple(telling)

    def may_match(self, bare: str) -> bool:
        """Whether a text without spaces has what every match contains."""
        return all(any(text in bare for text in choice) for choice in self.required_texts)

    @property
    def reads_value(self) -> bool:
        """Whether the pattern has a group that names what it finds."""
        return "(?P<it>" in self.says

    @property
    def needles(self) -> tuple[str, ...]:
        """The texts that are looked for first."""
        return self.required_texts[0]

    @cached_property
    def wrapped(self) -> re.Pattern[str]:
        """The pattern for text in which spaces may be line breaks."""
        pattern = _bounded(self.says).replace("…", r"[^\n]{0,160}?")
        pattern = pattern.replace(" ?", r"\s*")
        return re.compile(re.sub(r" \+?", r"\\s+", pattern), FLAGS)

    @cached_property
    def squashed(self) -> re.Pattern[str] | None:
        """The pattern for text without spaces, for words cut by a terminal's edge; None if it is too short."""
        shortest = min(map(len, self.needles))
        if shortest < SHORTEST_SQUASHED or self.says.startswith("^"):
            return None
        pattern = _bounded(self.says)
        for old, new in _SQUASHED.items():
            pattern = pattern.replace(old, new)
        return re.compile(re.sub(r" [?+]?", "", pattern), FLAGS)


def _bounded(says: str) -> str:
    """Return a pattern in which each repeat of a character has an end; what an ellipsis follows is part of it."""
    says = re.sub(r"\\[Sw]\* ?…", "…", says)
    return _CHARACTERS.sub(_with_an_end, says)


def _with_an_end(match: re.Match[str]) -> str:
    """Bound the repeat of a character or a class; inside a class nothing repeats, and a space is any break."""
    character, repeat = match.groups()
    kind = character
    if character.startswith("["):
        kind = "["
        character = character.replace(" ", r"\s")
    if not repeat:
        return character
    least = 1 if repeat == "+" else 0
    most = _LONGEST.get(kind, _LONGEST_OF_OTHERS)
    return f"{character}{{{least},{most}}}"


def _outside_and_groups(pattern: str) -> tuple[str, list[list[str]]]:
    """Return what stands outside a pattern's groups, and the alternatives of each group that must match."""
    outside = ""
    groups = []
    alternatives: list[str] = []
    depth = 0
    for index, character in enumerate(pattern):
        opens = character == "("
        closes = character == ")"
        if opens and depth == 0:
            alternatives = [""]
        elif closes and depth == 1:
            outside += _VARIES
            is_optional = pattern.startswith(("?", "*", "{"), index + 1)
            if not is_optional and not alternatives[0].startswith("?"):
                groups.append(alternatives)
        elif depth == 0:
            outside += character
        elif character == "|" and depth == 1:
            alternatives.append("")
        else:
            # What stands in a group within a group is in no match for certain.
            is_inner = depth > 1 or opens
            alternatives[-1] += _VARIES if is_inner else character
        depth += opens - closes
    return outside, groups


def _fixed(pattern: str) -> list[str]:
    """Return the texts that stand in a pattern between what may vary."""
    parts = _VARYING.split(pattern)
    return [part.translate(_UNESCAPED) for part in parts]


def _escaped(match: re.Match[str]) -> str:
    """Return a letter of no alphabet for an escaped character, so that it is not taken for a part of the pattern."""
    return chr(_ESCAPED + ord(match[1]))
