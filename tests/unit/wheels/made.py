"""Small wheels with GPU code in memory, and ways to read them."""

import io
import random
import re
import struct
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import requests

from gpuinstall.base.timeouts import Timeouts
from gpuinstall.wheels.http_ranges import HttpRanges
from tests.lab.host import Answer, Host

FLAGS = b"sm_75 sm_80 sm_90"
ROW = ("sm_75", "sm_80", "sm_90")
PYTHON_LIBRARY = "torch/lib/libtorch_python.so"
ENTRY = struct.Struct("<HHIQ8xHHI8xQ16x")
KINDS = {"compute": 1, "sm": 2, "other": 3, "link": 8}
FLAG = {"": 0, "a": 0x100000, "f": 0x200000}
_WORDS = [f"_ZN2at{number:x}E".encode() for number in range(7000, 11000)]


@cache
def filler(size, seed=0):
    """Return bytes that compress like a library."""
    dice = random.Random(seed)
    text = b"\0".join(
        dice.choice(_WORDS) + dice.randbytes(3) for _ in range(size // 14)
    )
    return text[:size].ljust(size, b"\1")


def library(string=b"\0" + FLAGS + b"\0", size=400_000, at=0.6):
    """Return a library with ``string`` at a fraction of its size."""
    before = filler(int(size * at))
    return before + string + filler(size - len(before), seed=1)


def fatbin(words):
    """Return a fatbin of ``sm_90a compute_90 isa 8.2``.

    ``link`` marks unlinked code, and ``other`` an unknown kind.
    """
    names, _, isa = words.partition(" isa ")
    major, minor = map(int, (isa or "0.0").split("."))
    programs = b""
    for kind, number, suffix in re.findall(r"([a-z]+)_(\d+)([af]?)", names):
        programs += ENTRY.pack(
            KINDS[kind], 0x101, 64, 300, minor, major, int(number), FLAG[suffix]
        )
        programs += filler(300)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(programs)) + programs


def archive(files, method=zipfile.ZIP_DEFLATED):
    """Return a zip file."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return held.getvalue()


def version_py(cuda="13.0"):
    """Return torch/version.py in the format since 2.10."""
    return (
        "from typing import Optional\n\n__version__ = '2.16.0+cu130'\ndebug = False\n"
        f"cuda: Optional[str] = {cuda!r}\ngit_version = 'd0f2af8b'\nhip: Optional[str] = None\n"
    ).encode()


def torch_files(**more):
    """Return the relevant files of a torch wheel; ``more`` overrides them."""
    metadata = b"Metadata-Version: 2.4\nName: torch\nVersion: 2.16.0\nRequires-Dist: triton==3.9.0\n\nTensors\n"
    return {
        "torch/_C.so": filler(2000),
        "torch/version.py": version_py(),
        PYTHON_LIBRARY: library(),
        "torch-2.16.0+cu130.dist-info/METADATA": metadata,
        "torch-2.16.0+cu130.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: cp312-cp312-manylinux_2_28_x86_64\n",
    } | more


TORCH_WHEEL = archive(torch_files())


@dataclass
class Bytes:
    """A file in memory."""

    data: bytes
    asked: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self):
        return len(self.data)

    def stream(self, start, end):
        self.asked.append((start, end))
        for first in range(start, end, 16384):
            yield self.data[first : min(end, first + 16384)]


RECORDS = re.compile(rb"\x7fELF|PK[\1\3\5]")


def changed(dice, data):
    """Return bytes with one random damage."""
    places = [match.start() for match in RECORDS.finditer(data)]
    field = dice.choice(places or [0]) + dice.randrange(64)
    at = min(dice.choice([field, dice.randrange(len(data))]), len(data) - 1)
    size = dice.choice([2, 4, 8])
    numbers = [0, 1, 0xFF, 1 << (8 * size - 1), (1 << 8 * size) - 1]
    number = dice.choice([*numbers, dice.getrandbits(8 * size)])
    few = dice.randrange(1, 100)
    return dice.choice(
        [
            data[:at] + number.to_bytes(size, "little") + data[at + size :],
            data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :],
            data[:at] + data[at + few :],
            data[:at] + dice.randbytes(few) + data[at:],
            data[:at] + data[max(at - few, 0) :],
            data[:at] + data[at : at + 16] * 40_000 + data[at:],
            (data[at:] + data)[: len(data)],
            data[:at],
            data.replace(b"\0", b"x", at),
            bytes(len(data)),
        ]
    )


@contextmanager
def server(respond):
    """Serve HTTP on loopback."""
    host = Host("wheels", respond)
    yield host
    host.close()


def serving(data, **headers):
    """Respond to every request with ``data``."""
    return lambda _path, _asked: Answer(body=data, headers=headers)


@contextmanager
def over_http(url, *, hosts=(), seconds=20.0, certificates=None):
    """Open a remote file; the login ``me:secret`` is sent where allowed."""
    with requests.Session() as session:

        def ask(url, headers, *, login):
            return session.get(
                url,
                headers=dict(headers),
                auth=("me", "secret")
                if login and url.startswith("http://127.0.0.1")
                else None,
                timeout=(3, 2),
                stream=True,
                allow_redirects=False,
                verify=certificates or True,
            )

        yield HttpRanges(ask, url, hosts=hosts, timeouts=Timeouts(seconds / 36))
