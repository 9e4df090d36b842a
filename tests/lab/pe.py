"""DLLs of Windows as far as their import table goes: Microsoft's "PE Format"."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADERS = 0x400
_ADDRESS = 1 << 24


def make_dll(imports: Sequence[str], before: int = 0, after: int = 0) -> bytes:
    """Return a 64-bit DLL that is linked to some libraries.

    Args:
        imports: Their names.
        before: How many bytes of code lie before the table.
        after: How many bytes lie behind it.
    """
    table_size = 20 * (len(imports) + 1)
    names = b""
    table = b""
    for name in imports:
        place = _ADDRESS + table_size + len(names)
        table += struct.pack("<12xI4x", place)
        names += name.encode() + b"\0"
    content = table + bytes(20) + names
    directories = struct.pack("<8xII", _ADDRESS, table_size) + bytes(14 * 8)
    optional = struct.pack("<H", 0x20B) + bytes(110) + directories
    sections = _section(b".text", 0x1000, before, _HEADERS)
    sections += _section(b".rdata", _ADDRESS, len(content), _HEADERS + before)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, 2, 0, 0, 0, len(optional), 0x2022)
    headers = b"MZ" + bytes(58) + struct.pack("<I", 64) + coff + optional + sections
    return headers.ljust(_HEADERS, b"\0") + bytes(before) + content + bytes(after)


def _section(name: bytes, address: int, size: int, place: int) -> bytes:
    return struct.pack("<8sIIII16x", name, size, address, size, place)
