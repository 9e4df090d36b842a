"""What it costs to learn a release that came out today, and what its rows cost the plans that come after."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.host import CHUNK
from tests.lab.index import StandInIndex
from tests.lab.new_torch import make_new_torch
from tests.lab.wheels import make_wheel

from bench.harness import GPUINSTALL, Row, duration, paired, seconds
from bench.lock import delay
from bench.start import MACHINE
from gpuinstall import load_catalog
from gpuinstall.errors import InstallationError
from gpuinstall.learned.newest import Place, learn
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.store import LearnedStore
from gpuinstall.reporter import SilentReporter
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources
from gpuinstall.units import readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.learned.row import LearnedRow

TAGS = ("cu130", "cu132", "cu140")
HERE = Place("linux", "x86_64")
LIBRARY = 23_000_000
"""The bytes of the library that names the architectures: so much that 7 MB of its wheel are read, as of a real one."""
BYTES_A_SECOND = 20_000_000
MEASURED_MB = 10
"""What the builds of a release may cost each, of wheels of half a gigabyte."""


def rows() -> Iterator[Row]:
    """Learn from the stand-in index and, where it answers, from the default index; then plan with and without."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for tag in TAGS:
            make_new_torch(folder / "index", tag, size=LIBRARY)
        make_wheel(folder / "index" / "simple", "filelock", "3.20.0")
        with StandInIndex(folder / "index") as index:
            took, found = _learned(
                "torch==2.16.0", folder / "xdg", {**os.environ, **index.environment()}
            )
            again = _again(folder, index)
        yield replace(
            _cost(f"learning {len(found)} builds, stand-in index", took, found), compared=""
        )
        try:
            took, found = _learned("torch", folder / "real", os.environ)
            most = len(found) * MEASURED_MB * 1_000_000
            yield replace(
                _cost("learning the newest torch, default index", took, found),
                goal=f"≤ {MEASURED_MB} MB each",
                met=sum(row.bytes for row in found) <= most,
            )
        except InstallationError as error:
            yield Row("learning the newest torch, default index", goal=error.message)
        yield again
        yield _plans(folder)


def _learned(
    text: str, cache: Path, environment: Mapping[str, str]
) -> tuple[float, list[LearnedRow]]:
    """Learn with nothing kept from before; the seconds, and the rows."""
    sources = read_sources(environment.get("GPUINSTALL_TORCH_INDEX"), environment, Path.cwd())
    with open_session(sources, SilentReporter()) as session:
        sources = replace(sources, default_index=sources.default_index or session.default_index)
        store = LearnedStore(cache / "gpuinstall" / "learned")
        began = time.perf_counter()
        found = learn(
            text, HERE, load_catalog(), Reader(sources, session.client, store, SilentReporter())
        )
        return time.perf_counter() - began, found


def _cost(what: str, took: float, found: list[LearnedRow]) -> Row:
    read, whole = sum(row.bytes for row in found), sum(row.size for row in found)
    requests = sum(row.requests for row in found)
    return Row(what, duration(took), readable(read), f"{read / whole:.1%}", f"{requests} requests")


def _again(folder: Path, index: StandInIndex) -> Row:
    """A live plan that has to read the wheels of a new torch, and the same plan again, which reads none."""
    for host in index.hosts:
        delay(host)
        host.pace = CHUNK / BYTES_A_SECOND
    newest = {**MACHINE, "driver": {"version": "615.71.09", "cuda": "13.4"}}
    file, caches = folder / "newest.json", folder / "again"
    file.write_text(json.dumps(newest), encoding="utf-8")
    plan = [GPUINSTALL, "plan", "--live", "--machine", str(file), "--python", "3.12"]
    environment = {**os.environ, **index.environment(), "XDG_CACHE_HOME": str(caches)}

    def first() -> float:
        shutil.rmtree(caches, ignore_errors=True)
        return seconds(plan, env=environment)

    def second() -> float:
        index.forget()
        taken = seconds(plan, env=environment)
        wheels = [
            asked.path
            for asked in index.log
            if asked.path.endswith(".whl") and asked.method == "GET"
        ]
        if wheels:
            raise RuntimeError(f"what was learned was asked for again: {wheels}")
        return taken

    again = paired(second, first, 5)
    return again.times("a live plan with a new torch at 20 MB/s again, against the first", 0.5)


def _plans(folder: Path) -> Row:
    """A plan of one who has learned rows, against one who has none."""
    file = folder / "machine.json"
    file.write_text(json.dumps(MACHINE), encoding="utf-8")
    plan = [GPUINSTALL, "plan", "--machine", str(file)]
    with_rows, without = (
        {**os.environ, "XDG_CACHE_HOME": str(folder / name)} for name in ("xdg", "empty")
    )
    pair = paired(lambda: seconds(plan, env=with_rows), lambda: seconds(plan, env=without), 25)
    return pair.times("plan with learned rows, against without", 1.1)
