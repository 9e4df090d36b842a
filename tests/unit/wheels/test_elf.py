"""The tables by which a library is linked, read of the file or of its beginning."""

import re
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


def made(
    symbols,
    *,
    chain=None,
    gnu=b"",
    strings=b"\0name\0",
    size=-1,
):
    """A library of one segment: its header, its dynamic entries, its hash table, its symbols, their names."""
    dynamic, hashes = 64 + 2 * 56, 64 + 2 * 56 + 16 * 8
    table = gnu or struct.pack("<II", 1, symbols if chain is None else chain)
    first = hashes + len(table)
    names = first + 24 * symbols
    tags = [
        (0x6FFFFEF5 if gnu else 4, hashes),
        (6, first),
        (5, names),
        (10, len(strings) if size < 0 else size),
    ]
    entries = b"".join(struct.pack("<QQ", *tag) for tag in tags).ljust(16 * 8, b"\0")
    whole = names + len(strings)
    header = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, whole, whole, 8)
    segments += struct.pack("<IIQQQQQQ", 2, 6, dynamic, dynamic, dynamic, 128, 128, 8)
    row = struct.pack("<IBBHQQ", 1, 0x12, 0, 0, 0, 0)
    return (
        header + segments + entries + table + bytes(24) + row * (symbols - 1) + strings
    )


def test_a_library_says_what_readelf_says_of_it(library):
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
    assert {name.decode() for name in elf.undefined()} == {*UNDEFINED, "newest_of_libm"}
    assert {name.decode() for name in elf.defined()} >= {*DEFINES, "call_them_all"}
    assert elf.newest("GLIBC") == (2, 99)
    assert elf.newest("GLIBCXX") is None


def test_the_beginning_of_a_library_says_the_same(library):
    data = library.read_bytes()
    elf = read_elf(data[: len(data) * 3 // 5], whole=False)

    assert elf is not None
    assert {name.decode() for name in elf.undefined()} == {*UNDEFINED, "newest_of_libm"}
    assert set(elf.needs) == {"libcudart.so.12", "libtorch_cpu.so", "libm.so.6"}
    assert elf.newest("GLIBC") == (2, 99)


def test_a_beginning_that_ends_among_the_names_says_nothing(library):
    data = library.read_bytes()
    names = data.index(UNDEFINED[20].encode())

    assert read_elf(data[:names], whole=False) is None


def test_every_part_of_a_library_says_nothing_or_the_same(library):
    data = library.read_bytes()
    right = {*UNDEFINED, "newest_of_libm"}
    answers = [
        read_elf(data[:end], whole=whole)
        for end in range(0, len(data), 61)
        for whole in (True, False)
    ]

    assert {
        frozenset(name.decode() for name in elf.undefined()) for elf in answers if elf
    } == {frozenset(right)}


def test_a_library_that_was_patched_has_its_names_at_the_end():
    strings = b"\0name\0" + b"X" * 5 + b"\0"

    elf = read_elf(made(30, strings=strings), whole=True)

    assert elf is not None
    assert elf.undefined() == {b"name"}


CHAINS = struct.pack("<IIII", 1, 1, 0, 0) + struct.pack("<I", 1) + bytes(4 * 29)
HOSTILE = {
    "more symbols than any library has": made(MANY),
    "a count of symbols beyond the file": made(30, chain=1 << 31),
    "a hash table without an end": made(30, gnu=CHAINS),
    "a hash table that begins behind all symbols": made(
        30, gnu=struct.pack("<IIIII", 1, 0xFFFFFFFF, 0, 0, 0)
    ),
    "strings without an end": made(30, strings=b"\0name"),
    "names outside": made(30, strings=b"\0"),
    "a header alone": made(30)[:64],
    "no header": b"\x7fELF\2\1",
    "another machine's order": b"\x7fELF\2\2" + made(30)[6:],
    "segments beyond the file": made(30)[:32]
    + struct.pack("<Q", 1 << 62)
    + made(30)[40:],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_library_says_nothing_at_once(name):
    tracemalloc.start()
    started = time.process_time()

    assert read_elf(HOSTILE[name], whole=True) is None
    assert read_elf(HOSTILE[name], whole=False) is None

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.process_time() - started < 5
    assert peak < 100 << 20
