"""Patterns of messages in the table of failures."""

from __future__ import annotations

import re
from functools import cached_property

from gpuinstall.base.values import Value

# Of a pattern: a class, an escape or a character, with what repeats it; and what a fixed text is not part of.
_PIECE = r"(\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|[^\\\[])([*+]?)"
_CLASS = r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]"
_GROUP = r"(?<!\\)\((?:\\.|[^()\\])*\)"
_VARYING = r"\\?.(?:[?*]|\{[^}]*\})|\\\w|[\0 .^$…+?|]"
# Nothing repeats without end, so that no text can keep a pattern busy.
_REPEATS = {"*": "{0,100}", "+": "{1,100}"}
_BREAKS = {"": r"\s+", "+": r"\s+", "*": r"\s*"}


class Pattern(Value):
    """A message to look for."""

    says: str
    """In lower case: a space stands for any break, an ellipsis for anything up to a line's end.

    The rest is a regular expression.
    """

    @classmethod
    def parse(cls, says: str) -> Pattern:
        """Return the pattern of a row."""
        return cls(says)

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The regular expression."""
        says = re.sub(_PIECE, _translated, self.says.replace(" ?", r"\s*"))
        # A word ends where other letters follow: 显卡RTX 5090上.
        return re.compile(says, re.MULTILINE | re.ASCII)

    @cached_property
    def needle(self) -> str:
        """The longest text in every match; empty if there is none."""
        says = re.sub(_CLASS, "\0", self.says.replace(r"\\", "\0"))
        while (outside := re.sub(_GROUP, "\0", says)) != says:
            says = outside
        fixed = re.sub(_VARYING, "\0", says).replace("\\", "")
        return max(fixed.split("\0"), key=len)


def _translated(piece: re.Match[str]) -> str:
    character, repeat = piece.groups()
    if character == " ":
        return _BREAKS[repeat]
    if character == "…":
        return r"[^\n]{0,160}?"
    return character.replace(" ", r"\s") + _REPEATS.get(repeat, "")
