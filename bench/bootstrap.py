"""What a second run of bootstrap.py costs, on a machine without a GPU."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
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
        person, project = Person(Path(folder) / "home"), Path(folder) / "project"
        person.home.mkdir()
        project.mkdir()
        made = catalog_index(Path(folder) / "index", ["2.14.1", "2.15.0"], platforms=[LINUX])
        command: list[str | Path] = [sys.executable, ROOT / "bootstrap.py"]
        run([*command, "--help"], env=person.environment(), cwd=project)
        with StandInIndex(made) as index:
            environment = {**person.environment(), **index.environment()}
            first = seconds(command, env=environment, cwd=project)
            second = sorted(seconds(command, env=environment, cwd=project) for _ in range(5))[2]
    yield single("bootstrap.py again, nothing changed", second, 3, beside=duration(first))
