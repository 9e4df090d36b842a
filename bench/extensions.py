"""What it costs to choose flash-attn for one machine: with nothing kept, and again."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.astral import astral_index
from tests.unit.wheels.made import filler

from bench.lock import TOOLS, delay
from bench.pairs import paired, seconds
from bench.row import Row, in_seconds
from gpuinstall.units import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = 1_500_000
"""The bytes of code behind the tables of the stand-in's libraries: more than the beginning that has to be read."""


def rows() -> Iterator[Row]:
    """Ask the stand-in of Astral's index, each of its answers late by one round trip."""
    with tempfile.TemporaryDirectory() as place:
        caches = Path(place) / "caches"
        index = astral_index(Path(place), ["flash-attn"], filler(LIBRARY))
        host = index.host()
        delay(host)
        mirror = {"GPUINSTALL_EXTENSION_INDEX": f"{host.url}/simple", "XDG_CACHE_HOME": str(caches)}
        machine = ["--gpu", "RTX 3090", "--driver", "550", "--python", "3.12"]
        words: list[str | Path] = [TOOLS / "gpuinstall", "extensions", "flash-attn", *machine]

        def first() -> float:
            shutil.rmtree(caches, ignore_errors=True)
            host.log.clear()
            return seconds(words, env={**os.environ, **mirror})

        def second() -> float:
            cold = len(host.log)
            taken = seconds(words, env={**os.environ, **mirror})
            if any("artifacts" in asked.path for asked in host.log[cold:]):
                raise RuntimeError("what was read was asked for again")
            return taken

        pair = paired(first, second, 5)
        sent, requests = readable(sum(asked.sent for asked in host.log)), len(host.log)
        host.close()
        what = "choosing flash-attn, and the same again"
        yield Row(what, in_seconds(pair.ours), in_seconds(pair.beside), sent, f"{requests} requests, cold and warm")
