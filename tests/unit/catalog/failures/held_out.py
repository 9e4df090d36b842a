"""Texts of public threads that no pattern was written from, and how often the first answer to them is right."""

from pathlib import Path
from typing import NamedTuple

import tomli

from gpuinstall.catalog.failures.classify import classify

HELD_OUT = Path(__file__).resolve().parents[3] / "data" / "logs" / "held-out.toml"
CLASSES = tuple((low / 10, (low + 1) / 10) for low in range(10))
"""Ten classes of confidence: from, and below."""


class Answer(NamedTuple):
    """The first answer to a text: the entries that are right, the one that was named, and how sure it was."""

    right: tuple[str, ...]
    named: str
    confidence: float
    text: str

    @property
    def is_right(self):
        """Whether the entry that was named is one of the right ones."""
        return self.named in self.right


def answers():
    """Every text to which there is an answer."""
    texts = tomli.loads(HELD_OUT.read_text("utf-8"))["text"]
    found = ((each, classify(each["says"])[:1]) for each in texts)
    return [
        Answer(
            (each["is"], *each.get("also", ())),
            cause.id,
            cause.confidence,
            each["says"],
        )
        for each, causes in found
        for cause in causes
    ]
