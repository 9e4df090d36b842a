"""Zip files that are not what they say."""

import io
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
    library,
    torch_files,
)

END = TORCH_WHEEL.rindex(b"PK\5\6")
DIRECTORY = struct.unpack_from("<I", TORCH_WHEEL, END + 16)[0]


def _with(data, at, form, *values):
    """Overwrite numbers."""
    new = struct.pack(form, *values)
    return data[:at] + new + data[at + len(new) :]


def _entry(name):
    """Where the directory's entry of a file begins."""
    return TORCH_WHEEL.rindex(name.encode(), DIRECTORY) - 46


def _code(data):
    with pytest.raises(WheelError) as caught:
        read_torch(WheelReader(Bytes(data)))
    return caught.value.code


def _zip64(data):
    """Keep the place of the directory and the sizes of the library in zip64's fields, as files above 4 GB do."""
    entry = _entry(PYTHON_LIBRARY)
    packed, size = struct.unpack_from("<2I", data, entry + 20)
    start = struct.unpack_from("<I", data, entry + 42)[0]
    extra = struct.pack("<HHHHHHQQQ", 0x5455, 4, 0, 0, 1, 24, size, packed, start)
    name_end = entry + 46 + len(PYTHON_LIBRARY)
    changed = _with(
        _with(
            _with(data, entry + 20, "<2I", *[0xFFFFFFFF] * 2),
            entry + 42,
            "<I",
            0xFFFFFFFF,
        ),
        entry + 30,
        "<H",
        len(extra),
    )
    directory = changed[DIRECTORY:name_end] + extra + changed[name_end:END]
    count = struct.unpack_from("<H", data, END + 10)[0]
    record = struct.pack(
        "<4sQ2H2I4Q",
        b"PK\6\6",
        44,
        45,
        45,
        0,
        0,
        count,
        count,
        len(directory),
        DIRECTORY,
    )
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, DIRECTORY + len(directory), 1)
    end = struct.pack(
        "<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0
    )
    return data[:DIRECTORY] + directory + record + locator + end


def test_zip64():
    data = _zip64(TORCH_WHEEL)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.read(PYTHON_LIBRARY) == library()
    assert read_torch(WheelReader(Bytes(data))).architectures == ROW


def test_a_directory_larger_than_the_end_that_is_looked_at():
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
        _with(TORCH_WHEEL, END + 16, "<I", 0),
        _with(TORCH_WHEEL, END + 16, "<I", 0xFFFFFFFE),
        _with(TORCH_WHEEL, END + 12, "<I", 50),
        _with(TORCH_WHEEL, DIRECTORY + 28, "<H", 0xFFFF),
        _with(TORCH_WHEEL, _entry(PYTHON_LIBRARY) + 8, "<H", 1),  # encrypted
        _with(TORCH_WHEEL, _entry(PYTHON_LIBRARY) + 10, "<H", 93),  # packed by zstd
        _with(TORCH_WHEEL, _entry(PYTHON_LIBRARY) + 20, "<I", 1000),
        _with(TORCH_WHEEL, _entry(PYTHON_LIBRARY) + 24, "<I", 1000),
        _with(
            TORCH_WHEEL, _entry(PYTHON_LIBRARY) + 42, "<I", 0
        ),  # at the place of another
        _with(
            TORCH_WHEEL, _entry("torch/version.py") + 16, "<I", 7
        ),  # another checksum
        _with(TORCH_WHEEL, _entry("torch/version.py") + 24, "<I", 5),
        TORCH_WHEEL.replace(b"torch/version.py", b"torch/Version.py", 1),
    ],
)
def test_a_malformed_wheel_is_one_clear_error(data):
    assert _code(data) == "wheel-malformed"


def test_a_name_twice_is_an_error():
    data = archive({"torch/a": b"", "torch/b": b""}).replace(b"torch/b", b"torch/a")
    assert _code(data) == "wheel-malformed"


def test_a_million_files_are_not_read():
    entry = (
        struct.pack("<4s6H3I5H2I", b"PK\1\2", *[0] * 6, 0, 0, 0, 1, *[0] * 4, 0, 0)
        + b"a"
    )
    data = entry * 1_000_000
    record = struct.pack(
        "<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 10**6, 10**6, len(data), 0
    )
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, len(data), 1)
    end = struct.pack(
        "<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0
    )
    ranges = Bytes(data + record + locator + end)
    with pytest.raises(WheelError) as caught:
        WheelReader(ranges)
    assert caught.value.code == "wheel-too-large"
    assert len(ranges.asked) == 1


def _bomb(inflated):
    """Zeros, packed a thousand to one."""
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(1 << 20)
    return (
        b"".join(engine.compress(block) for _ in range(inflated >> 20)) + engine.flush()
    )


def _holding(packed, size):
    """A wheel of torch in which the library is ``packed`` and says that it has ``size`` bytes."""
    held = archive(torch_files() | {PYTHON_LIBRARY: packed}, zipfile.ZIP_STORED)
    entry = held.rindex(PYTHON_LIBRARY.encode()) - 46
    local = struct.unpack_from("<I", held, entry + 42)[0]
    return _with(
        _with(_with(held, entry + 24, "<I", size), entry + 10, "<H", 8),
        local + 8,
        "<H",
        8,
    )


@pytest.mark.parametrize(
    ("size", "code"), [(10_000_000, "wheel-malformed"), (0x7FFFFFFF, "wheel-too-large")]
)
def test_a_deflate_bomb_is_inflated_no_further_than_it_may(size, code):
    data = _holding(_bomb(64 << 20), size)
    tracemalloc.start()
    with pytest.raises(WheelError) as caught:
        read_torch(WheelReader(Bytes(data), Limits(inflated=32 << 20)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.code == code
    assert peak < 20 << 20


@pytest.mark.parametrize("limits", [Limits(bytes=100_000), Limits(inflated=100_000)])
def test_limits(limits):
    with pytest.raises(WheelError) as caught:
        read_torch(WheelReader(Bytes(TORCH_WHEEL), limits))
    assert caught.value.code == "wheel-too-large"
    assert caught.value.evidence


class _Endless(Bytes):
    """Never stops sending."""

    def stream(self, start, end):
        yield from super().stream(start, end)
        while True:
            yield b"\0" * 1000


class _Short(Bytes):
    """Stops a byte early."""

    def stream(self, start, end):
        yield from super().stream(start, end - 1)


@pytest.mark.parametrize("kind", [_Endless, _Short])
def test_more_or_less_than_was_asked_for(kind):
    with pytest.raises(WheelError) as caught:
        WheelReader(kind(TORCH_WHEEL))
    assert caught.value.code == "wrong-range"


def test_a_large_text_is_not_read():
    wheel = WheelReader(Bytes(archive({"a/b": bytes(5 << 20)})))
    with pytest.raises(WheelError, match="5242880"):
        wheel.read("a/b")


def test_a_file_that_was_read_whole_is_kept_on_the_disk_if_much_is_in_memory(
    monkeypatch,
):
    monkeypatch.setattr("gpuinstall.wheels.wheel_reader._MOST_KEPT", 5)
    wheel = WheelReader(Bytes(archive({"a.so": b"small", "b.so": b"larger" * 20_000})))

    whole = [wheel.whole(name)[:] for name in ("a.so", "b.so")]
    read = wheel.bytes_read
    again = [b"".join(wheel.stream(name)) for name in ("a.so", "b.so")]

    assert whole == again == [b"small", b"larger" * 20_000]
    assert wheel.bytes_read == read
