"""The strings in torch's own libraries that say for which architectures it was compiled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.wheels.architectures import ordered

if TYPE_CHECKING:
    from collections.abc import Iterable

_CUDA = rb"(?:sm|compute)_(?:[2-9]\d|[1-3]\d\d)[af]?"
_TOKEN = rb"(?:%b|gfx[1-9][0-9a-f]{2,3})" % _CUDA
_FLAGS = re.compile(rb"%b(?: %b)*\0" % (_TOKEN, _TOKEN))
_GENCODE = re.compile(rb"((?:-gencode;arch=%b,code=%b;?)+)\0" % (_CUDA, _CUDA))
_CODE = re.compile(rb"code=([^;]+)")
_SIGNS = (b"sm_", b"gfx", b"compute_")
_SEPARATORS = b" ,;:/|="
_LONGEST = 4096
"""In bytes; a list of fifty architectures is shorter."""


def read_flags(pieces: Iterable[bytes]) -> tuple[str, ...]:
    """Find what ``torch.cuda.get_arch_list()`` returns: names with blanks between them, up to a NUL.

    What lies before the first name need not be a NUL (torch 2.8.0 and 2.9.1). A single name counts only where there
    is no list, no other single name, and none that ends a list in some other form. Empty where there is no answer.
    """
    single: set[bytes] = set()
    for text in _windows(pieces):
        for match in _FLAGS.finditer(text):
            names = match[0][:-1].split(b" ")
            if len(names) > 1:
                return ordered(name.decode() for name in names)
            before = text[match.start() - 1 : match.start()]
            single.add(before + names[0] if before and before in _SEPARATORS else names[0])
    return ordered(name.decode() for name in single if name[:1].isalpha()) if len(single) == 1 else ()


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
        if any(sign in text for sign in _SIGNS):
            yield text
        end = text[-_LONGEST:]
