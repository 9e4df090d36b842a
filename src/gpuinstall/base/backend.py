"""What a build is made for, such as CUDA 12.6: a kind and its version, and the tag that indexes give it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


class Spelling(NamedTuple):
    """How the tags of a kind are written: a prefix, then the version (a pattern), with its dots or without."""

    prefix: str
    version: str = ""
    dotted: bool = True


SPELLINGS = {
    "cpu": Spelling("cpu"),
    "cuda": Spelling("cu", "[0-9]{2,3}", dotted=False),
    "rocm": Spelling("rocm", r"[0-9]+(?:\.[0-9]+)*"),
    "xpu": Spelling("xpu"),
}
"""By kind; a maker whose builds are of another kind adds one."""


class Backend(NamedTuple):
    """The kind of a build, ``cuda``, and its version, ``12.6``; written, it is the tag ``cu126``."""

    kind: str
    version: str | None = None

    @staticmethod
    @lru_cache
    def parse(tag: str) -> Backend:
        """Read a tag; raise ValueError for what is none."""
        for kind, (prefix, pattern, dotted) in SPELLINGS.items():
            match = re.fullmatch(f"{prefix}({pattern})", tag)
            if match:
                version = match[1] if dotted else f"{match[1][:-1]}.{match[1][-1]}"
                return Backend(kind, version or None)
        raise ValueError(f"{tag!r} is not a backend such as cu126 or cpu")

    @property
    def tag(self) -> str:
        """Its name in addresses, versions and documents: ``cu126``, ``rocm7.2``."""
        prefix, _, dotted = SPELLINGS[self.kind]
        version = self.version or ""
        return prefix + (version if dotted else version.replace(".", ""))

    @property
    def file_tag(self) -> str:
        """Its name in the name of a lock, where PEP 751 forbids dots: ``rocm7-2``; no tag has a hyphen itself."""
        return self.tag.replace(".", "-")

    def __str__(self) -> str:
        return self.tag


CPU = Backend("cpu")


def known_backend(tag: str | None) -> Backend | None:
    """Read a tag; None for what is none."""
    try:
        return Backend.parse(tag) if tag else None
    except ValueError:
        return None


def is_like_a_tag(text: str) -> bool:
    """Whether a text begins as the tags of some kind do, and goes on with a number or nothing."""
    match = re.fullmatch(r"([a-z]+)[0-9.]*", text)
    return match is not None and match[1] in {spelling.prefix for spelling in SPELLINGS.values()}
