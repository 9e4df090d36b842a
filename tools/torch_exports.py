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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.catalog.listing import default_wheels
from gpuinstall.catalog.narrowing import platforms
from gpuinstall.catalog.pages import parse_page
from gpuinstall.patience import Patience
from gpuinstall.reporter import SilentReporter
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources
from gpuinstall.wheels.elf import read_elf
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.ranges import Limits
from gpuinstall.wheels.torch_abi import (
    OF_DEVICE,
    Exports,
    hashed,
    load_exports,
    ordinary_names,
    stable_names,
)
from gpuinstall.wheels.wheel_reader import WheelReader

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpuinstall.session import Session

TABLE = Path(__file__).parent.parent / "src" / "gpuinstall" / "wheels" / "torch_exports.bin"
COMMON = ("libc10", "libc10_cuda", "libtorch_cpu", "libtorch_python")
DEVICE = ("libtorch_cuda",)
LIMITS = Limits(bytes=1 << 30, inflated=8 << 30, requests=400)
"""libtorch_cuda has up to 680 MB packed, and 1.5 GB inflated."""


def main(words: Sequence[str]) -> None:
    """Read what is not in the folder yet, or the newest release alone, and write the table."""
    if words == ["--newest"]:
        add_newest()
        return
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    with open_session(read_sources(None, os.environ, Path.cwd()), SilentReporter()) as session:
        for word in words[1:]:
            version = word.removesuffix("+")
            for part, libraries in (
                ("common", COMMON),
                *([("device", DEVICE)] if word.endswith("+") else []),
            ):
                file = folder / f"{version}-{part}.txt"
                if not file.exists():
                    file.write_bytes(b"\n".join(sorted(read(session, version, libraries))))
    names = {}
    for file in sorted(
        folder.glob("*-common.txt"), key=lambda file: Version(file.name.partition("-")[0])
    ):
        version = file.name.partition("-")[0]
        of_device = folder / f"{version}-device.txt"
        minor = "{}.{}".format(*Version(version).release)
        names[minor] = (
            file.read_bytes().split(b"\n"),
            of_device.read_bytes().split(b"\n") if of_device.exists() else None,
        )
    table = exports(names)
    TABLE.write_bytes(packed(table))
    sys.stdout.write(
        f"{len(table.masks)} names of torch {', '.join(table.minors)}: {TABLE.stat().st_size} bytes\n"
    )


def add_newest() -> None:
    """Add the newest release, read without its device's library, where its minor is newer than every one there."""
    table = load_exports()
    with open_session(read_sources(None, os.environ, Path.cwd()), SilentReporter()) as session:
        sources = replace(session.sources, default_index=session.default_index)
        wheels = default_wheels(sources, session.client, "torch")
        newest = max(wheel.version for wheel in wheels if not wheel.version.is_prerelease)
        minor = "{}.{}".format(*newest.release)
        if newest.release[:2] <= Version(table.minors[-1]).release:
            sys.stdout.write(f"torch {minor} is there\n")
            return
        TABLE.write_bytes(packed(extended(table, minor, read(session, newest.public, COMMON))))
    sys.stdout.write(f"torch {minor} was added: {TABLE.stat().st_size} bytes\n")


def extended(table: Exports, minor: str, names: Collection[bytes]) -> Exports:
    """Add a minor release to the table, newer than all that are in it."""
    masks = dict(table.masks)
    for name in map(hashed, names):
        masks[name] = masks.get(name, 0) | 1 << len(table.minors)
    return Exports((*table.minors, minor), table.whole, masks)


def exports(names: Mapping[str, tuple[Collection[bytes], Collection[bytes] | None]]) -> Exports:
    """Make the table of the names that each minor release exports: those of any build, and of its device's library.

    The second is None where that was not read.
    """
    masks: dict[int, int] = defaultdict(int)
    for number, (common, of_device) in enumerate(names.values()):
        for name in {*common, *(of_device or ())}:
            masks[hashed(name)] |= 1 << number
    usual = {hashed(name) for common, _ in names.values() for name in common}
    device_only = {hashed(name) for _, of_device in names.values() for name in of_device or ()}
    for number in device_only - usual:
        masks[number] |= OF_DEVICE
    whole = frozenset(minor for minor, (_, of_device) in names.items() if of_device is not None)
    return Exports(tuple(names), whole, masks)


def packed(table: Exports) -> bytes:
    """Write the table as the file holds it."""
    groups: dict[int, list[int]] = defaultdict(list)
    for name, mask in sorted(table.masks.items()):
        groups[mask].append(name)
    hashes = b"".join(name.to_bytes(4, "big") for group in groups.values() for name in group)
    head = {
        "minors": table.minors,
        "whole": sorted(table.whole),
        "groups": [[mask, len(group)] for mask, group in groups.items()],
    }
    columns = b"".join(hashes[column::4] for column in range(4))
    return json.dumps(head).encode() + b"\n" + lzma.compress(columns, preset=9)


def read(session: Session, version: str, libraries: Sequence[str]) -> set[bytes]:
    """Read what some libraries of a release export."""
    page = session.client.page(f"{session.default_index}/torch/")
    if page is None:
        raise SystemExit("the default index has no torch")
    listed = parse_page(page)
    same = (wheel for wheel in listed if wheel.version.public == version)
    wheel = max(
        (one for one in same if ("linux", "x86_64") in platforms(one.tags)),
        key=lambda one: one.filename,
    )
    opened = WheelReader(
        HttpRanges(session.client.ask_part, wheel.url, patience=Patience(450)), LIMITS
    )
    names: set[bytes] = set()
    for library in libraries:
        with tempfile.TemporaryFile() as file:
            for piece in opened.stream(f"torch/lib/{library}.so"):
                file.write(piece)
            file.flush()
            elf = read_elf(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), whole=True)
        if elf is None:
            raise SystemExit(f"{library} of {wheel.filename} cannot be read")
        defined = elf.defined()
        names |= ordinary_names(defined) | stable_names(defined)
    cost = f"{opened.bytes_read >> 20} MB"
    sys.stdout.write(f"{wheel.filename}: {len(names)} names of {', '.join(libraries)}, {cost}\n")
    return names


if __name__ == "__main__":
    main(sys.argv[1:])
