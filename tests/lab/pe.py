"""Windows DLLs with an import table, from Microsoft's "PE Format"."""

import struct
from collections.abc import Mapping, Sequence

_HEADERS = 0x400
_ADDRESS = 1 << 24


def make_dll(imports: Mapping[str, Sequence[str]]) -> bytes:
    """Return a 64-bit DLL that imports the given functions of each library."""
    table_size = 20 * (len(imports) + 1)
    behind = b""
    table = b""

    def put(data: bytes) -> int:
        """Append data after the import table, and return its address."""
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
    section = struct.pack(
        "<8sIIII16x", b".rdata", len(content), _ADDRESS, len(content), _HEADERS
    )
    coff = struct.pack(
        "<4sHHIIIHH", b"PE\0\0", 0x8664, 1, 0, 0, 0, len(optional), 0x2022
    )
    headers = b"MZ" + bytes(58) + struct.pack("<I", 64) + coff + optional + section
    return headers.ljust(_HEADERS, b"\0") + content
