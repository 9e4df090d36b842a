"""Words that were mistyped: which of the known ones was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def likely_command(word: str, commands: Iterable[str]) -> str | None:
    """The command that a bare word is, or is one letter away from: changed, left out, added, or two exchanged."""
    word = word.lower()
    known = list(commands)
    return word if word in known else next((command for command in known if _is_near(word, command)), None)


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """What somebody who typed ``word`` is likely to have meant."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), 1)), None)


def _is_near(one: str, other: str) -> bool:
    """Say whether two words are one stroke apart."""
    shorter, longer = sorted((one, other), key=len)
    if len(longer) - len(shorter) > 1:
        return False
    start = next((at for at, pair in enumerate(zip(shorter, longer, strict=False)) if pair[0] != pair[1]), len(shorter))
    rest, more = shorter[start:], longer[start:]
    exchanged = len(rest) > 1 and rest[:2] == more[1::-1] and rest[2:] == more[2:]
    return exchanged or rest == more[1:] or (len(rest) == len(more) and rest[1:] == more[1:])
