"""Tests with malformed and malicious zip files."""

import struct
import tracemalloc
import zipfile
import zlib

import pytest

from gpuinstall.wheels.ranges import Limits, WheelError
from gpuinstall.wheels.torch_wheel import read_torch
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.unit.wheels.made import (
    PYTHON_LIBRARY,
    ROW,
    TORCH_WHEEL,
    Bytes,
    archive,
    filler,
    torch_files,
)

END = TORCH_WHEEL.rindex(b"PK\5\6")
DIRECTORY = struct.unpack_from("<I", TORCH_WHEEL, END + 16)[0]


def _with(data, at, form, *values):
    """Overwrite numbers."""
    new = struct.pack(form, *values)
    return data[:at] + new + data[at + len(new) :]


def _entry(name):
    """Return the offset of a file's directory entry."""
    return TORCH_WHEEL.rindex(name.encode(), DIRECTORY) - 46


def _error(ranges, limits=Limits()):  # noqa: B008  frozen
    with pytest.raises(WheelError) as caught:
        read_torch(WheelReader(ranges, limits))
    return caught.value


def test_zip64_wheel_is_read(monkeypatch):
    # Treat every file as larger than 4 GB.
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 0)
    data = archive(torch_files())

    assert b"PK\6\6" in data
    assert read_torch(WheelReader(Bytes(data))).architectures == ROW


def test_large_zip_directory_is_read():
    ranges = Bytes(
        archive(
            torch_files()
            | {f"torch/include/{number:05}.h": b"" for number in range(3000)}
        )
    )
    wheel = WheelReader(ranges)
    assert read_torch(wheel).architectures == ROW
    assert ranges.asked[1][1] == ranges.asked[0][0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK",
        b"\0" * 100_000,
        TORCH_WHEEL[:-1],
        TORCH_WHEEL[: END + 4],
        TORCH_WHEEL[:DIRECTORY] + TORCH_WHEEL[END:],  # the directory is gone
        TORCH_WHEEL[: DIRECTORY + 100] + TORCH_WHEEL[DIRECTORY + 101 :],  # a byte of it
        TORCH_WHEEL[5000:],  # the beginning
        TORCH_WHEEL.replace(b"torch/version.py", b"torch/Version.py", 1),
    ],
)
def test_malformed_wheel_is_rejected(data):
    assert _error(Bytes(data)).code == "wheel-malformed"


LIBRARY = _entry(PYTHON_LIBRARY)
VERSION = _entry("torch/version.py")


@pytest.mark.parametrize(
    ("at", "form", "number"),
    [
        (END + 16, "<I", 0),
        (END + 16, "<I", 0xFFFFFFFE),
        (END + 12, "<I", 50),
        (DIRECTORY + 28, "<H", 0xFFFF),
        # Encrypted, packed by zstd, with other sizes, at another file's offset.
        (LIBRARY + 8, "<H", 1),
        (LIBRARY + 10, "<H", 93),
        (LIBRARY + 20, "<I", 1000),
        (LIBRARY + 24, "<I", 1000),
        (LIBRARY + 42, "<I", 0),
        # Another checksum, another size.
        (VERSION + 16, "<I", 7),
        (VERSION + 24, "<I", 5),
    ],
)
def test_invalid_zip_header_number_is_rejected(at, form, number):
    data = _with(TORCH_WHEEL, at, form, number)

    assert _error(Bytes(data)).code == "wheel-malformed"


def test_duplicate_file_name_in_wheel_is_rejected():
    data = archive({"torch/a": b"", "torch/b": b""}).replace(b"torch/b", b"torch/a")
    assert _error(Bytes(data)).code == "wheel-malformed"


def test_wheel_with_million_files_is_rejected():
    entries = TORCH_WHEEL[_entry("torch/_C.so") : _entry("torch/version.py")] * 150_000
    count = 1_000_000
    record = struct.pack(
        "<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(entries), 0
    )
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(entries), 1)
    end = b"PK\5\6" + bytes(4) + b"\xff" * 12 + bytes(2)
    ranges = Bytes(entries + record + locator + end)

    assert _error(ranges).code == "wheel-too-large"
    assert len(ranges.asked) == 1


def _bomb(inflated):
    """Return zeros, compressed a thousand to one."""
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(1 << 20)
    return (
        b"".join(engine.compress(block) for _ in range(inflated >> 20)) + engine.flush()
    )


def _holding(packed, size):
    """Return a torch wheel with the library ``packed`` and a declared size."""
    held = archive(torch_files() | {PYTHON_LIBRARY: packed}, zipfile.ZIP_STORED)
    entry = held.rindex(PYTHON_LIBRARY.encode()) - 46
    local = struct.unpack_from("<I", held, entry + 42)[0]
    for at, form, number in (
        (entry + 24, "<I", size),
        (entry + 10, "<H", zipfile.ZIP_DEFLATED),
        (local + 8, "<H", zipfile.ZIP_DEFLATED),
    ):
        held = _with(held, at, form, number)
    return held


@pytest.mark.parametrize(
    ("size", "code"), [(10_000_000, "wheel-malformed"), (0x7FFFFFFF, "wheel-too-large")]
)
def test_zip_bomb_is_not_decompressed(size, code):
    ranges = Bytes(_holding(_bomb(64 << 20), size))
    tracemalloc.start()
    assert _error(ranges, Limits(inflated=32 << 20)).code == code
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20


@pytest.mark.parametrize("limits", [Limits(bytes=100_000), Limits(inflated=100_000)])
def test_wheel_byte_limits_are_enforced(limits):
    error = _error(Bytes(TORCH_WHEEL), limits)

    assert error.code == "wheel-too-large"
    assert error.evidence


class _Endless(Bytes):
    """A file that never ends."""

    def stream(self, start, end):
        yield from super().stream(start, end)
        while True:
            yield b"\0" * 1000


class _Short(Bytes):
    """A file that ends a byte early."""

    def stream(self, start, end):
        yield from super().stream(start, end - 1)


@pytest.mark.parametrize("kind", [_Endless, _Short])
def test_response_of_wrong_length_is_rejected(kind):
    assert _error(kind(TORCH_WHEEL)).code == "wrong-range"


def test_large_metadata_text_is_not_read():
    wheel = WheelReader(Bytes(archive({"a/b": bytes(5 << 20)})))
    with pytest.raises(WheelError, match="5242880"):
        wheel.read("a/b")


def test_large_file_is_cached_on_disk(
    monkeypatch,
):
    monkeypatch.setattr("gpuinstall.wheels.wheel_reader._MAX_KEPT", 5)
    wheel = WheelReader(Bytes(archive({"a.so": b"small", "b.so": b"larger" * 20_000})))

    whole = [wheel.read_whole(name)[:] for name in ("a.so", "b.so")]
    read = wheel.bytes_read
    again = [b"".join(wheel.stream(name)) for name in ("a.so", "b.so")]

    assert whole == again == [b"small", b"larger" * 20_000]
    assert wheel.bytes_read == read


def test_file_after_a_suspended_file_is_read():
    files = {"a.so": b"a" * 90, "b.so": b"b", "c": filler(200_000)}
    wheel = WheelReader(Bytes(archive(files)))
    # The first piece is all of a.so. Its request ends at the start of b.so.
    suspended = wheel.stream("a.so")
    assert next(suspended) == b"a" * 90
    assert wheel.read("b.so") == b"b"
    assert not [*suspended]
