"""The selector page: how large it is, what the newest torch adds to it, and how soon it answers in a browser."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.browser import CHROMIUM, browser

from bench.harness import Row, single
from gpuinstall import load_catalog
from gpuinstall.page import selector_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from packaging.version import Version

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.catalog import Build, KindOfBuilds

LARGEST = 150_000
ANSWER_S = 0.1
ASKED = "gpu=GeForce+RTX+4090&driver=535.183.01"
SHOWN = """(() => {
  const start = performance.now();
  readAddress();
  return [performance.getEntriesByType("navigation")[0].domComplete, performance.now() - start];
})()"""


def rows() -> Iterator[Row]:
    """Write the page with and without the newest torch, and ask the first in Chromium where there is one."""
    catalog = load_catalog()
    began = time.perf_counter()
    text = selector_page(catalog)
    took, size = time.perf_counter() - began, len(text.encode())
    before = len(selector_page(_without_newest(catalog)).encode())
    yield single("page: written for every class of machines", took)
    goal = f"< {LARGEST / 1000:.0f} kB"
    yield Row("page: one file", f"{size / 1000:.0f} kB", goal=goal, met=size < LARGEST)
    yield Row(f"page: before torch {max(catalog.releases)} came", f"{before / 1000:.0f} kB")
    if CHROMIUM:
        yield from _asked(text)


def _without_newest(catalog: Catalog) -> Catalog:
    newest = max(catalog.releases)
    releases = {torch: release for torch, release in catalog.releases.items() if torch != newest}
    further = {kind: partial(_other_than, newest, read) for kind, read in catalog.further.items()}
    return replace(
        catalog, releases=releases, builds=_of_others(catalog.builds, newest), further=further
    )


def _other_than(newest: Version, read: Callable[[], KindOfBuilds]) -> KindOfBuilds:
    found = read()
    return found._replace(builds=_of_others(found.builds, newest))


def _of_others(builds: Iterable[Build], newest: Version) -> tuple[Build, ...]:
    return tuple(build for build in builds if build.torch != newest)


def _asked(text: str) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder, "profile")) as shown:
        place = Path(folder, "index.html")
        place.write_text(text, encoding="utf-8")
        shown.open(f"{place.as_uri()}#{ASKED}")
        loaded, answered = (each / 1000 for each in shown.run(SHOWN))
    yield single("page: opened in Chromium, with its first answer", loaded)
    yield single("page: an answer there", answered, ANSWER_S)
