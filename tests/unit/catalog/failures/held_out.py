"""Texts from public threads that no pattern was derived from."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import tomli

from gpuinstall.catalog.failures.classify import classify

HELD_OUT = Path(__file__).resolve().parents[3] / "data" / "logs" / "held-out.toml"


class Answer(NamedTuple):
    """The first cause for a text, with the correct entries."""

    right: tuple[str, ...]
    named: str
    is_certain: bool
    text: str

    @property
    def is_right(self):
        """Whether the reported entry is correct."""
        return self.named in self.right


@cache
def answers():
    """Return the first cause for each text that has one."""
    texts = tomli.loads(HELD_OUT.read_text("utf-8"))["text"]
    found = ((each, classify(each["says"])[:1]) for each in texts)
    return [
        Answer(
            (each["is"], *each.get("also", ())),
            cause.id,
            cause.certainty == "certain",
            each["says"],
        )
        for each, causes in found
        for cause in causes
    ]
