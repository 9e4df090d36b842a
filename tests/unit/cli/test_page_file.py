from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.cli.page import page_file

if TYPE_CHECKING:
    from pathlib import Path


def test_a_page_is_written_to_the_named_file(tmp_path: Path) -> None:
    (tmp_path / "site.html").mkdir()
    cases = {
        "selector.html": "selector.html",
        "public/GPUs.HTM": "public/GPUs.HTM",
        "selector": "selector/index.html",
        "v1.2": "v1.2/index.html",
        "site.html": "site.html/index.html",
    }

    written = {name: page_file(tmp_path / name).relative_to(tmp_path).as_posix() for name in cases}

    assert {name: place for name, place in written.items() if place != cases[name]} == {}
