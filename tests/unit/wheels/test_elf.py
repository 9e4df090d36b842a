"""Link tables of a library, read from the file or its beginning."""

import re
import shutil
import struct
import time
import tracemalloc

import pytest

from gpuinstall.wheels.elf import read_elf
from tests.lab.native import native_library, readelf

UNDEFINED = [f"_ZN2at4wantE{number}v" for number in range(40)]
DEFINES = [f"own_{number}" for number in range(400)]
MANY = 1_000_000


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return native_library(
        tmp_path_factory.mktemp("native") / "_C.so",
        undefined=UNDEFINED,
        weak=["_ZTHN2at4weakE"],
        defines=DEFINES,
        needs=["libcudart.so.12", "libtorch_cpu.so"],
        glibc="2.99",
        rpath="$ORIGIN/../some.libs:$ORIGIN",
        soname="_C.so",
    )


def made(symbols, *, count=None, strings=b"\0name\0", end=0):
    """Return a library with a header, dynamic entries, symbols, and names."""
    first = 64 + 16
    row = struct.pack("<IBBHQQ", 1, 0x12, 0, 0, 0, 0)
    table = bytes(24) + row * (symbols - 1)
    names = first + len(table)
    sections = names + len(strings)
    header = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, sections, 0, 64, 56, 0, 64, 3, 0
    )
    rows = (
        (6, 64, 16, 2),
        (11, first, 24 * (symbols if count is None else count), 2),
        (3, names, len(strings) + end, 0),
    )
    places = b"".join(struct.pack("<4xI16xQQI20x", *section) for section in rows)
    return header + bytes(16) + table + strings + places


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
def test_library_tables_match_readelf(library):
    elf = read_elf(library.read_bytes(), whole=True)

    assert elf is not None
    said = readelf(library, "-d")
    assert (
        list(elf.needs)
        == re.findall(r"NEEDED.*\[(.*)\]", said)
        == ["libcudart.so.12", "libtorch_cpu.so", "libm.so.6"]
    )
    assert elf.paths == ("$ORIGIN/../some.libs", "$ORIGIN")
    assert elf.soname == "_C.so"
    assert {name.decode() for name in elf.undefined_symbols()} == {
        *UNDEFINED,
        "newest_of_libm",
    }
    assert {name.decode() for name in elf.defined_symbols()} >= {
        *DEFINES,
        "call_them_all",
    }
    assert elf.required_glibc() == (2, 99)


def test_truncated_library_returns_none_or_same_symbols(library):
    data = library.read_bytes()
    right = {*UNDEFINED, "newest_of_libm"}
    answers = [
        read_elf(data[:end], whole=whole)
        for end in range(0, len(data), 61)
        for whole in (True, False)
    ]

    assert {
        frozenset(name.decode() for name in elf.undefined_symbols())
        for elf in answers
        if elf
    } == {frozenset(right)}


def test_symbol_names_at_end_of_file_are_read():
    strings = b"\0name\0" + b"X" * 5 + b"\0"

    elf = read_elf(made(30, strings=strings), whole=True)

    assert elf is not None
    assert elf.undefined_symbols() == {b"name"}


HOSTILE = {
    "more symbols than any library has": made(MANY),
    "a count of symbols beyond the file": made(30, count=1 << 31),
    "names beyond the file": made(30, end=1 << 62),
    "strings without an end": made(30, strings=b"\0name"),
    "names outside": made(30, strings=b"\0"),
    "a header alone": made(30)[:64],
    "no header": b"\x7fELF\2\1",
    "another machine's order": b"\x7fELF\2\2" + made(30)[6:],
    "sections beyond the file": made(30)[:40]
    + struct.pack("<Q", 1 << 62)
    + made(30)[48:],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_malicious_library_is_rejected_quickly(name):
    tracemalloc.start()
    started = time.process_time()

    assert read_elf(HOSTILE[name], whole=True) is None
    # Section headers are outside the beginning.
    beginning = read_elf(HOSTILE[name], whole=False)
    assert beginning is None or beginning.undefined_symbols() == {b"name"}

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - started < 5
    assert peak < 100 << 20
