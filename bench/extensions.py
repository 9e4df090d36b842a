"""What it costs to choose flash-attn, and a program with forty native wheels: with nothing kept, and again."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.astral import astral_index
from tests.lab.index import StandInIndex
from tests.lab.native import native_library
from tests.lab.releases import LINUX, catalog_index
from tests.lab.wheels import make_wheel
from tests.unit.wheels.made import fatbin, filler

from bench.harness import GPUINSTALL, Row, duration, paired, seconds
from bench.lock import delay
from gpuinstall.units import readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.lab.host import Host

LIBRARY = 1_500_000
"""The bytes of code behind the tables of the stand-in's libraries: more than the beginning that has to be read."""


PARTS = 40
MACHINE = ("--gpu", "RTX 3090", "--driver", "550.54.14", "--glibc", "2.35", "--python", "3.12")


def rows() -> Iterator[Row]:
    """Ask stand-ins, each of whose answers is late by one round trip."""
    with tempfile.TemporaryDirectory() as place:
        yield _flash_attn(Path(place) / "one")
        yield from _forty_wheels(Path(place) / "forty")


def _flash_attn(place: Path) -> Row:
    """Choose its file of Astral's index."""
    place.mkdir()
    index = astral_index(place, ["flash-attn"], filler(LIBRARY))
    host = index.host()
    delay(host)
    variables = {"GPUINSTALL_EXTENSION_INDEX": f"{host.url}/simple"}
    row = _twice(
        "choosing flash-attn, and the same again",
        ["extensions", "flash-attn"],
        [host],
        place,
        variables,
    )
    host.close()
    return row


def _forty_wheels(place: Path) -> Iterator[Row]:
    """Choose a program with forty native wheels; then torch alone, with and without looking at code."""
    folder = catalog_index(place / "index", ["2.13.0"], platforms=[LINUX], pythons=["3.12"])
    code = fatbin((2, 80, 0), (2, 86, 0), (2, 90, 0)) * 3 + filler(LIBRARY)
    library = native_library(
        place / "made" / "o.so", needs=["libcudart.so.12"], code=code
    ).read_bytes()
    names = [f"part-{number}" for number in range(PARTS)]
    for name in names:
        modules = {f"{name.replace('-', '_')}/o.so": library}
        tags = "py3-none-manylinux_2_28_x86_64"
        make_wheel(folder / "simple", name, "1.0", tags, requires=["torch"], modules=modules)
    make_wheel(folder / "simple", "painter", "1.0", requires=["torch", *names])
    with StandInIndex(folder) as index:
        for host in index.hosts:
            delay(host)
        what = f"choosing a program with {PARTS} native wheels, and again"
        yield _twice(what, ["plan", "--live", "painter"], index.hosts, place, index.environment())
        variables = {**os.environ, **index.environment(), **_caches(place)}
        plan: list[str | Path] = [GPUINSTALL, "plan", "--live", "torch", *MACHINE]
        pair = paired(
            lambda: seconds(plan, env=variables, cwd=place),
            lambda: seconds([*plan, "--no-code-check"], env=variables, cwd=place),
            5,
        )
        yield pair.times("plan of torch, and without looking at code", 1.1)


def _caches(place: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(place / "caches"), "UV_CACHE_DIR": str(place / "caches" / "uv")}


def _twice(
    what: str, words: list[str], hosts: Sequence[Host], place: Path, variables: Mapping[str, str]
) -> Row:
    """Choose with nothing kept, and again; a wheel that was read may not be asked for again."""
    command: list[str | Path] = [GPUINSTALL, *words, *MACHINE]
    environment = {**os.environ, **variables, **_caches(place)}

    def parts() -> int:
        return sum(bool(asked.range) for host in hosts for asked in host.log)

    def first() -> float:
        shutil.rmtree(place / "caches", ignore_errors=True)
        for host in hosts:
            host.log.clear()
        return seconds(command, env=environment, cwd=place)

    def second() -> float:
        cold = parts()
        taken = seconds(command, env=environment, cwd=place)
        if parts() > cold:
            raise RuntimeError("what was read was asked for again")
        return taken

    pair = paired(first, second, 5)
    log = [asked for host in hosts for asked in host.log]
    sent = readable(sum(asked.sent for asked in log))
    return Row(
        what,
        duration(pair.ours),
        duration(pair.beside),
        sent,
        f"{len(log)} requests, cold and warm",
    )
