"""DLLs of Windows as far as their import table goes: Microsoft's "PE Format"."""

import struct
from collections.abc import Mapping, Sequence

_HEADERS = 0x400
_ADDRESS = 1 << 24


def make_dll(
    imports: Mapping[str, Sequence[str]],
    before: int = 0,
    after: int = 0,
    relocatable: bytes = b"",
) -> bytes:
    """Return a 64-bit DLL that takes functions from some libraries.

    Args:
        imports: The functions, by library.
        before: How many bytes of code lie before the table.
        after: How many bytes lie behind it.
        relocatable: GPU code that was linked before, between the table and what lies behind it.
    """
    table_size = 20 * (len(imports) + 1)
    behind = b""
    table = b""

    def put(data: bytes) -> int:
        """Put something behind the table, and return its address."""
        nonlocal behind
        behind += data
        return _ADDRESS + table_size + len(behind) - len(data)

    for name, functions in imports.items():
        places = [put(bytes(2) + function.encode() + b"\0") for function in functions]
        functions_place = put(struct.pack(f"<{len(places) + 1}Q", *places, 0))
        table += struct.pack("<I8xI4x", functions_place, put(name.encode() + b"\0"))
    content = table + bytes(20) + behind
    directories = struct.pack("<8xII", _ADDRESS, table_size) + bytes(14 * 8)
    optional = struct.pack("<H", 0x20B) + bytes(110) + directories
    sections = _section(b".text", 0x1000, before, _HEADERS)
    sections += _section(b".rdata", _ADDRESS, len(content), _HEADERS + before)
    behind_content = _HEADERS + before + len(content)
    sections += _section(b"__nv_rel", _ADDRESS * 2, len(relocatable), behind_content)
    coff = struct.pack(
        "<4sHHIIIHH", b"PE\0\0", 0x8664, 3, 0, 0, 0, len(optional), 0x2022
    )
    headers = b"MZ" + bytes(58) + struct.pack("<I", 64) + coff + optional + sections
    return (
        headers.ljust(_HEADERS, b"\0")
        + bytes(before)
        + content
        + relocatable
        + bytes(after)
    )


def _section(name: bytes, address: int, size: int, place: int) -> bytes:
    return struct.pack("<8sIIII16x", name, size, address, size, place)
