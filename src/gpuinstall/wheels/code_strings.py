"""The strings in torch's own libraries that say for which architectures it was compiled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.wheels.architectures import ordered

if TYPE_CHECKING:
    from collections.abc import Iterable

_TOKEN = rb"(?:(?:sm|compute)_\d{2,3}[af]?|gfx[1-9][0-9a-f]{2,3})"
_FLAGS = re.compile(rb"(%b(?: %b)+)\0" % (_TOKEN, _TOKEN))
_LONE_FLAG = re.compile(rb"(%b)\0" % _TOKEN)
_GENCODE = re.compile(rb"((?:-gencode;arch=compute_\d{2,3}[af]?,code=%b;?)+)\0" % _TOKEN)
_CODE = re.compile(rb"code=([^;]+)")
_LONGEST = 4096
"""In bytes; a list of fifty architectures is shorter."""


def read_flags(pieces: Iterable[bytes]) -> tuple[str, ...]:
    """Find what ``torch.cuda.get_arch_list()`` returns: names with blanks between them, up to a NUL.

    What lies before the first name need not be a NUL (torch 2.8.0 and 2.9.1). A build for one architecture has one
    name with nothing to tell it from other strings, so it counts only where no list is found, nor another such name.
    Empty where there is no answer.
    """
    lone: set[bytes] = set()
    for text in _windows(pieces):
        if match := _FLAGS.search(text):
            return ordered(match[1].decode().split(" "))
        lone |= set(_LONE_FLAG.findall(text))
    return ordered(name.decode() for name in lone) if len(lone) == 1 else ()


def read_gencode(pieces: Iterable[bytes]) -> tuple[str, ...]:
    """Find what ``torch.__config__.show()`` calls "NVCC architecture flags"; empty where they are not."""
    for text in _windows(pieces):
        if match := _GENCODE.search(text):
            return ordered(name.decode() for name in _CODE.findall(match[1]))
    return ()


def _windows(pieces: Iterable[bytes]) -> Iterable[bytes]:
    """Give each piece with the end of what came before, so that no string is cut."""
    end = b""
    for piece in pieces:
        text = end + piece
        yield text
        end = text[-_LONGEST:]
