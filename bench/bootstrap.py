"""What a second run of bootstrap.py costs, on a machine without a GPU."""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.lab.clone import ROOT, Person
from tests.lab.index import StandInIndex
from tests.lab.releases import LINUX, catalog_index

from bench.harness import Row, duration, run, seconds, single

if TYPE_CHECKING:
    from collections.abc import Iterator


def rows() -> Iterator[Row]:
    """Run it twice in an empty folder of a person with an empty home; torch comes from the stand-in index."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        project.mkdir()
        person = Person(Path(folder) / "home")
        person.home.mkdir()
        made = catalog_index(Path(folder) / "index", ["2.14.1", "2.15.0"], platforms=[LINUX])
        command: list[str | Path] = [sys.executable, ROOT / "bootstrap.py"]
        run([*command, "--help"], env=person.environment(), cwd=project)
        with StandInIndex(made) as index:
            environment = {**person.environment(), **index.environment()}
            bootstrap = partial(seconds, command, env=environment, cwd=project)
            first = bootstrap()
            second = median(bootstrap() for _ in range(5))
    yield single(
        "bootstrap.py again, nothing changed",
        second,
        most=3,
        beside=duration(first),
    )
