"""What it costs to learn a release that came out today, and what its rows cost the plans that come after."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from dataclasses import replace
from functools import partial
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
            environment = {**os.environ, **index.environment()}
            took, learned = _learned("torch==2.16.0", folder / "xdg", environment)
            again = _again(folder, index)
        cost = _cost(f"learning {len(learned)} builds, stand-in index", took, learned)
        yield replace(cost, compared="")
        what = "learning the newest torch, default index"
        try:
            took, learned = _learned("torch", folder / "real", os.environ)
        except InstallationError as error:
            yield Row(what, goal=error.message)
        else:
            most = len(learned) * MEASURED_MB * 1_000_000
            yield replace(
                _cost(what, took, learned),
                goal=f"≤ {MEASURED_MB} MB each",
                met=sum(row.bytes for row in learned) <= most,
            )
        yield again
        yield _plans(folder)


def _learned(
    text: str,
    cache: Path,
    environment: Mapping[str, str],
) -> tuple[float, list[LearnedRow]]:
    """Learn with nothing kept from before; return the seconds and the rows."""
    sources = read_sources(environment.get("GPUINSTALL_TORCH_INDEX"), environment, Path.cwd())
    with open_session(sources, SilentReporter()) as session:
        sources = replace(sources, default_index=sources.default_index or session.default_index)
        store = LearnedStore(cache / "gpuinstall" / "learned")
        began = time.perf_counter()
        reader = Reader(sources, session.client, store, SilentReporter())
        rows = learn(text, HERE, load_catalog(), reader)
        return time.perf_counter() - began, rows


def _cost(
    what: str,
    took: float,
    rows: list[LearnedRow],
) -> Row:
    read = sum(row.bytes for row in rows)
    whole = sum(row.size for row in rows)
    requests = sum(row.requests for row in rows)
    return Row(
        what,
        duration(took),
        readable(read),
        compared=f"{read / whole:.1%}",
        goal=f"{requests} requests",
    )


def _again(folder: Path, index: StandInIndex) -> Row:
    """Measure a live plan that has to read the wheels of a new torch, and the same plan again, which reads none."""
    for host in index.hosts:
        delay(host)
        host.pace = CHUNK / BYTES_A_SECOND
    newest = {**MACHINE, "driver": {"version": "615.71.09", "cuda": "13.4"}}
    caches = folder / "again"
    file = folder / "newest.json"
    file.write_text(json.dumps(newest), encoding="utf-8")
    plan = [GPUINSTALL, "plan", "--live", "--machine", str(file), "--python", "3.12"]
    environment = {
        **os.environ,
        **index.environment(),
        "XDG_CACHE_HOME": str(caches),
    }
    run = partial(seconds, plan, env=environment)

    def first() -> float:
        shutil.rmtree(caches, ignore_errors=True)
        return run()

    def second() -> float:
        index.forget()
        taken = run()
        fetched = [request.path for request in index.log if request.method == "GET"]
        wheels = [path for path in fetched if path.endswith(".whl")]
        if wheels:
            raise RuntimeError(f"what was learned was asked for again: {wheels}")
        return taken

    # Each round begins with what the one before has learned.
    first()
    again = paired(second, first, 5)
    return again.times("a live plan with a new torch at 20 MB/s again, against the first", 0.5)


def _plans(folder: Path) -> Row:
    """Measure a plan of a user who has learned rows, against one who has none."""
    file = folder / "machine.json"
    file.write_text(json.dumps(MACHINE), encoding="utf-8")
    plan = [GPUINSTALL, "plan", "--machine", str(file)]
    with_rows = {**os.environ, "XDG_CACHE_HOME": str(folder / "xdg")}
    without = {**os.environ, "XDG_CACHE_HOME": str(folder / "empty")}
    pair = paired(
        partial(seconds, plan, env=with_rows),
        partial(seconds, plan, env=without),
        25,
    )
    return pair.times("plan with learned rows, against without", 1.1)
