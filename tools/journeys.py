"""docs/journeys.md: what daily commands do to a folder, as the lab saw it; ``python -m tools.journeys`` writes it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.driver import FakeDriver, FakeGpu, build, environment
from tests.lab.folder_journeys import FOLDER_JOURNEYS
from tests.lab.index import StandInIndex
from tests.lab.journeys import FIRST, JOURNEYS, OTHER, Scene, travel
from tests.lab.releases import LINUX, catalog_index
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.lab.journeys import Row

PAGE = Path(__file__).resolve().parent.parent / "docs" / "journeys.md"
HEAD = """# Journeys

One folder, step by step: its contents before and after each command, and the output. Then the folders that people
come with, and what pip, uv, git and a CI runner do to them. `python -m tools.journeys` runs every step with a stand-in
index and writes this page; a test does the same.

| journey | command | before | after | output | exit |
|---|---|---|---|---|---|
"""


def page(rows: Iterable[Row]) -> str:
    """Return the page."""
    return HEAD + "".join(f"{row}\n" for row in rows)


def rows(folder: Path) -> list[Row]:
    """Return what came of every step, all taken below ``folder``."""
    wheels = catalog_index(
        folder / "index",
        ["2.14.1"],
        platforms=[LINUX, "windows-x86_64"],
        pythons=[FIRST, OTHER],
    )
    make_wheel(wheels / "simple", "rich", "14.2.0", requires=["markdown"])
    make_wheel(wheels / "simple", "markdown", "3.9")
    driver = FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020)
    played = environment(driver, build(folder / "libraries"), folder)
    (folder / "project").mkdir()
    with StandInIndex(wheels) as index:
        variables = index.environment()
        for name in ("LAB_GPUS", "LD_LIBRARY_PATH"):
            variables[name] = played[name]
        workshop = Workshop(folder / "project", folder / "caches", variables)
        scene = Scene(workshop, index)
        return list(travel(scene, (*JOURNEYS, *FOLDER_JOURNEYS)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        PAGE.write_text(page(rows(Path(name))), encoding="utf-8")
