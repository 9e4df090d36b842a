"""Make ``src/gpuinstall/wheels/torch_exports.bin``, what torch exports, of the wheels on the default index.

``python -m tools.torch_exports FOLDER VERSION…`` reads the libraries of each release by range (some 125 MB) and keeps
their names in FOLDER, so that the next release costs only its own. A version that ends in ``+`` is read with the
library of the device too (another 320 MB and more). Every minor release in FOLDER goes into the table.

``python -m tools.torch_exports --newest`` adds the default index's newest release, where the table lacks its minor.
"""

from __future__ import annotations

import json
import lzma
import mmap
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.patience import Patience
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.catalog.listing import default_wheels, platforms
from gpuinstall.catalog.pages import parse_page
from gpuinstall.sources import read_sources
from gpuinstall.sources.session import open_session
from gpuinstall.wheels.elf import read_elf
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.ranges import Limits
from gpuinstall.wheels.torch_abi import (
    OF_DEVICE,
    Exports,
    hashed,
    load_exports,
    torch_names,
)
from gpuinstall.wheels.wheel_reader import WheelReader

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpuinstall.catalog import Wheel
    from gpuinstall.sources.session import Session

TABLE = (
    Path(__file__).parent.parent / "src" / "gpuinstall" / "wheels" / "torch_exports.bin"
)
COMMON = ("libc10", "libc10_cuda", "libtorch_cpu", "libtorch_python")
DEVICE = ("libtorch_cuda",)
LIMITS = Limits(bytes=1 << 30, inflated=8 << 30)
"""libtorch_cuda has up to 680 MB packed, and 1.5 GB inflated."""


def main(words: Sequence[str]) -> None:
    """Read what is not in the folder yet, or the newest release alone, and write the table."""
    if words == ["--newest"]:
        add_newest()
        return
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    with open_session(
        read_sources(None, os.environ, Path.cwd()), Reporter()
    ) as session:
        for word in words[1:]:
            version = word.removesuffix("+")
            keep(session, folder / f"{version}-common.txt", version, COMMON)
            if word.endswith("+"):
                keep(session, folder / f"{version}-device.txt", version, DEVICE)
    versions = [
        file.name.removesuffix("-common.txt") for file in folder.glob("*-common.txt")
    ]
    names = {}
    for version in sorted(versions, key=Version):
        device = folder / f"{version}-device.txt"
        names[minor_of(Version(version))] = (
            (folder / f"{version}-common.txt").read_bytes().split(b"\n"),
            device.read_bytes().split(b"\n") if device.exists() else None,
        )
    table = exports(names)
    TABLE.write_bytes(packed(table))
    minors = ", ".join(table.minors)
    size = TABLE.stat().st_size
    sys.stdout.write(f"{len(table.masks)} names of torch {minors}: {size} bytes\n")


def keep(
    session: Session,
    file: Path,
    version: str,
    libraries: Sequence[str],
) -> None:
    """Write what libraries of a release export into a file, unless it is there."""
    if not file.exists():
        file.write_bytes(b"\n".join(sorted(read(session, version, libraries))))


def minor_of(version: Version) -> str:
    """Return the minor release of a version: ``2.14``."""
    return f"{version.major}.{version.minor}"


def add_newest() -> None:
    """Add the newest release, read without its device's library, if its minor is newer than every one there."""
    table = load_exports()
    with open_session(
        read_sources(None, os.environ, Path.cwd()), Reporter()
    ) as session:
        sources = replace(session.sources, default_index=session.default_index)
        wheels = default_wheels(sources, session.client, "torch")
        newest = max(
            wheel.version for wheel in wheels if not wheel.version.is_prerelease
        )
        minor = minor_of(newest)
        if newest.release[:2] <= Version(table.minors[-1]).release:
            sys.stdout.write(f"torch {minor} is there\n")
            return
        names = read(session, newest.public, COMMON)
    TABLE.write_bytes(packed(extended(table, minor, names)))
    sys.stdout.write(f"torch {minor} was added: {TABLE.stat().st_size} bytes\n")


def extended(
    table: Exports,
    minor: str,
    names: Collection[bytes],
) -> Exports:
    """Add a minor release to the table, newer than all that are in it."""
    masks = dict(table.masks)
    for name in map(hashed, names):
        masks[name] = masks.get(name, 0) | 1 << len(table.minors)
    return Exports((*table.minors, minor), table.whole, masks)


def exports(
    names: Mapping[str, tuple[Collection[bytes], Collection[bytes] | None]],
) -> Exports:
    """Return the table of the names that each minor release exports.

    Args:
        names: By release those of any build, and those of its device's library; None if that was not read.
    """
    masks: dict[int, int] = defaultdict(int)
    common_names: set[int] = set()
    device_names: set[int] = set()
    whole: set[str] = set()
    for number, (minor, (common, device)) in enumerate(names.items()):
        own_common = set(map(hashed, common))
        own_device = set(map(hashed, device or ()))
        for name in own_common | own_device:
            masks[name] |= 1 << number
        common_names |= own_common
        device_names |= own_device
        if device is not None:
            whole.add(minor)
    for name in device_names - common_names:
        masks[name] |= OF_DEVICE
    return Exports(tuple(names), frozenset(whole), masks)


def packed(table: Exports) -> bytes:
    """Return the table as the file holds it."""
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
    # The first bytes of all names, then the second ones: sorted names have those in common.
    columns = b"".join(hashes[column::4] for column in range(4))
    return json.dumps(head).encode() + b"\n" + lzma.compress(columns, preset=9)


def read(
    session: Session,
    version: str,
    libraries: Sequence[str],
) -> set[bytes]:
    """Return what some libraries of a release export."""
    wheel = linux_wheel(session, version)
    ranges = HttpRanges(session.client.ask_part, wheel.url, patience=Patience(450))
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
        names |= torch_names(elf.defined())
    cost = f"{reader.bytes_read >> 20} MB"
    sys.stdout.write(
        f"{wheel.filename}: {len(names)} names of {', '.join(libraries)}, {cost}\n"
    )
    return names


def linux_wheel(session: Session, version: str) -> Wheel:
    """Return a wheel of a release on the default index: those for other Pythons export the same."""
    page = session.client.page(f"{session.default_index}/torch/")
    if page is None:
        raise SystemExit("the default index has no torch")
    wheels = [wheel for wheel in parse_page(page) if wheel.version.public == version]
    for_linux = [wheel for wheel in wheels if "linux_x86_64" in platforms(wheel.tags)]
    return max(for_linux, key=lambda wheel: wheel.filename)


if __name__ == "__main__":
    main(sys.argv[1:])
