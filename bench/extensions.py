"""What it costs to choose flash-attn, and a program with forty native wheels: with nothing kept, and again."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import closing
from functools import partial
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

    from tests.lab.host import Host, ReceivedRequest

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
    with closing(index.host()) as host:
        delay(host)
        return _twice(
            "choosing flash-attn, and the same again",
            ["extensions", "flash-attn"],
            [host],
            place,
            {"GPUINSTALL_EXTENSION_INDEX": f"{host.url}/simple"},
        )


def _forty_wheels(place: Path) -> Iterator[Row]:
    """Choose a program with forty native wheels; then torch alone, with and without looking at code."""
    folder = catalog_index(place / "index", ["2.13.0"], platforms=[LINUX], pythons=["3.12"])
    code = fatbin((2, 80, 0), (2, 86, 0), (2, 90, 0)) * 3 + filler(LIBRARY)
    path = native_library(place / "made" / "o.so", needs=["libcudart.so.12"], code=code)
    library = path.read_bytes()
    names = [f"part-{number}" for number in range(PARTS)]
    for name in names:
        modules = {f"{name.replace('-', '_')}/o.so": library}
        tags = "py3-none-manylinux_2_28_x86_64"
        make_wheel(
            folder / "simple",
            name,
            "1.0",
            tags,
            requires=["torch"],
            modules=modules,
        )
    make_wheel(folder / "simple", "painter", "1.0", requires=["torch", *names])
    with StandInIndex(folder) as index:
        for host in index.hosts:
            delay(host)
        what = f"choosing a program with {PARTS} native wheels, and again"
        yield _twice(what, ["plan", "--live", "painter"], index.hosts, place, index.environment())
        variables = {
            **os.environ,
            **index.environment(),
            **_caches(place),
        }
        plan = [GPUINSTALL, "plan", "--live", "torch", *MACHINE]
        run = partial(seconds, env=variables, cwd=place)
        pair = paired(partial(run, plan), partial(run, [*plan, "--no-code-check"]), 5)
        yield pair.times("plan of torch, and without looking at code", 1.1)


def _caches(place: Path) -> dict[str, str]:
    caches = place / "caches"
    return {"XDG_CACHE_HOME": str(caches), "UV_CACHE_DIR": str(caches / "uv")}


def _twice(
    what: str,
    words: list[str],
    hosts: Sequence[Host],
    place: Path,
    variables: Mapping[str, str],
) -> Row:
    """Choose with nothing kept, and again; a wheel that was read may not be asked for again."""
    environment = {
        **os.environ,
        **variables,
        **_caches(place),
    }
    run = partial(seconds, [GPUINSTALL, *words, *MACHINE], env=environment, cwd=place)

    def requests() -> list[ReceivedRequest]:
        return [request for host in hosts for request in host.log]

    def parts() -> int:
        return sum(bool(request.range) for request in requests())

    def first() -> float:
        shutil.rmtree(place / "caches", ignore_errors=True)
        for host in hosts:
            host.log.clear()
        return run()

    def second() -> float:
        cold = parts()
        taken = run()
        if parts() > cold:
            raise RuntimeError("what was read was asked for again")
        return taken

    pair = paired(first, second, 5)
    log = requests()
    sent = readable(sum(request.sent for request in log))
    return Row(
        what,
        duration(pair.ours),
        duration(pair.beside),
        sent,
        f"{len(log)} requests, cold and warm",
    )
