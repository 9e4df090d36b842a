"""Generate ``torch_exports.bin``, the symbols that torch exports.

``python -m tools.torch_exports [VERSION…]`` adds releases whose minor is newer than all
in the table, by default the latest on the default index. It reads about 125 MB of each
release's libraries by range. For a version that ends in ``+``, it also reads the device
library (another 320 MB or more).
"""

from __future__ import annotations

import json
import lzma
import mmap
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.reporter import Reporter
from gpuinstall.base.timeouts import Timeouts
from gpuinstall.catalog.listing import platforms, read_default_wheels
from gpuinstall.sources import read_sources
from gpuinstall.sources.session import open_session
from gpuinstall.wheels.elf import read_elf
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.ranges import Limits
from gpuinstall.wheels.torch_abi import (
    OF_DEVICE,
    Exports,
    hash_name,
    load_exports,
    select_torch_names,
)
from gpuinstall.wheels.wheel_reader import WheelReader

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuinstall.catalog import Wheel
    from gpuinstall.sources.session import Session

TABLE = (
    Path(__file__).parent.parent / "src" / "gpuinstall" / "wheels" / "torch_exports.bin"
)
COMMON = ("libc10", "libc10_cuda", "libtorch_cpu", "libtorch_python")
DEVICE = ("libtorch_cuda",)
LIMITS = Limits(bytes=1 << 30, inflated=8 << 30)
"""libtorch_cuda has up to 680 MB compressed and 1.5 GB uncompressed."""


def main(words: Sequence[str]) -> None:
    """Inspect each later minor release and add its symbols to the table."""
    table = load_exports()
    with open_session(read_sources(None, Path.cwd()), Reporter()) as session:
        for word in words or [find_latest_release(session)]:
            version = word.removesuffix("+")
            minor = "{}.{}".format(*Version(version).release)
            if Version(minor) <= Version(table.minors[-1]):
                sys.stdout.write(f"torch {minor} is there\n")
                continue
            common = read(session, version, COMMON)
            device = read(session, version, DEVICE) if word.endswith("+") else None
            table = add_release(table, minor, common, device)
            sys.stdout.write(f"torch {minor} was added\n")
    TABLE.write_bytes(pack_exports(table))


def find_latest_release(session: Session) -> str:
    """Return the newest release of the default index."""
    versions = [wheel.version for wheel in read_wheels(session)]
    return max(one for one in versions if not one.is_prerelease).public


def read_wheels(session: Session) -> tuple[Wheel, ...]:
    """Return the wheels of torch on the default index."""
    sources = session.find_listed_sources()
    return read_default_wheels(sources, session.client, "torch")


def add_release(
    table: Exports,
    minor: str,
    common: Collection[bytes],
    device: Collection[bytes] | None = None,
) -> Exports:
    """Add a later minor release to the table.

    Args:
        table: The table.
        minor: The release.
        common: The symbols that every build exports.
        device: The symbols of the device library; None if it was not read.
    """
    masks = dict(table.masks)
    bit = 1 << len(table.minors)
    for name in map(hash_name, device or ()):
        masks[name] = masks.get(name, OF_DEVICE) | bit
    for name in map(hash_name, common):
        masks[name] = masks.get(name, 0) & ~OF_DEVICE | bit
    whole = table.whole if device is None else table.whole | {minor}
    return Exports((*table.minors, minor), whole, masks)


def pack_exports(table: Exports) -> bytes:
    """Return the bytes of the table's file."""
    groups: dict[int, list[int]] = defaultdict(list)
    for name, mask in sorted(table.masks.items()):
        groups[mask].append(name)
    hashes = b""
    for group in groups.values():
        hashes += b"".join(name.to_bytes(4, "big") for name in group)
    head = {
        "minors": table.minors,
        "whole": sorted(table.whole),
        "groups": [[mask, len(group)] for mask, group in groups.items()],
    }
    # Store the hashes by column, because sorted hashes share their first bytes.
    columns = b"".join(hashes[column::4] for column in range(4))
    return json.dumps(head).encode() + b"\n" + lzma.compress(columns, preset=9)


def read(
    session: Session,
    version: str,
    libraries: Sequence[str],
) -> set[bytes]:
    """Return the symbols that libraries of a release export."""
    wheel = find_linux_wheel(session, version)
    ranges = HttpRanges(session.client.request_range, wheel.url, timeouts=Timeouts(450))
    reader = WheelReader(ranges, LIMITS)
    names: set[bytes] = set()
    for library in libraries:
        with tempfile.TemporaryFile() as file:
            for piece in reader.stream(f"torch/lib/{library}.so"):
                file.write(piece)
            file.flush()
            elf = read_elf(
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), whole=True
            )
        if elf is None:
            raise SystemExit(f"{library} of {wheel.filename} cannot be read")
        names |= select_torch_names(elf.defined_symbols())
    cost = f"{reader.bytes_read >> 20} MB"
    sys.stdout.write(
        f"{wheel.filename}: {len(names)} names of {', '.join(libraries)}, {cost}\n"
    )
    return names


def find_linux_wheel(session: Session, version: str) -> Wheel:
    """Return the Linux wheel of a release for the latest Python."""
    wheels = [one for one in read_wheels(session) if one.version.public == version]
    for_linux = [wheel for wheel in wheels if "linux_x86_64" in platforms(wheel.tags)]
    return max(for_linux, key=lambda wheel: wheel.filename)


if __name__ == "__main__":
    main(sys.argv[1:])
