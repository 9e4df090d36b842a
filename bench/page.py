"""The selector page: how large it is, and how soon it answers in a browser."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.browser import CHROMIUM, browser

from bench.harness import Row, single
from gpuinstall import load_catalog
from gpuinstall.page import selector_page

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 150_000
ANSWER_S = 0.1
QUESTION = "gpu=GeForce+RTX+4090&driver=535.183.01"
TIMES = """(() => {
  const start = performance.now();
  readAddress();
  return [performance.getEntriesByType("navigation")[0].domComplete, performance.now() - start];
})()"""


def rows() -> Iterator[Row]:
    """Write the page, and ask it in Chromium if there is one."""
    catalog = load_catalog()
    began = time.perf_counter()
    text = selector_page(catalog)
    yield single(
        "page: written for every class of machines",
        time.perf_counter() - began,
    )
    size = len(text.encode())
    yield Row(
        "page: one file",
        f"{size / 1000:.0f} kB",
        goal=f"< {LARGEST / 1000:.0f} kB",
        met=size < LARGEST,
    )
    if CHROMIUM:
        yield from _in_browser(text)


def _in_browser(text: str) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder, "profile")) as window:
        place = Path(folder, "index.html")
        place.write_text(text, encoding="utf-8")
        window.open(f"{place.as_uri()}#{QUESTION}")
        loaded_ms, answered_ms = window.run(TIMES)
    yield single("page: opened in Chromium, with its first answer", loaded_ms / 1000)
    yield single("page: an answer there", answered_ms / 1000, ANSWER_S)
