"""The page as one text: frame, style, script, answers, and tables for a browser without scripts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from gpuinstall.page.answers import PLATFORMS, Platform, page_data
from gpuinstall.support import (
    NOTHING,
    Support,
    condensed,
    kinds_of,
    known_drivers,
    named,
    served,
    support,
    support_of_others,
)

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog


def selector_page(catalog: Catalog, platforms: Sequence[Platform] = PLATFORMS) -> str:
    """Return the page for a catalogue; asking ``choose`` for all answers takes seconds."""
    style = _part("page.css")
    script = _part("page.js")
    policy = (
        "default-src 'none'",
        f"style-src {_hash(style)}",
        f"script-src {_hash(script)}",
        "base-uri 'none'",
        "form-action 'none'",
    )
    document = json.dumps(
        page_data(catalog, platforms),
        separators=(",", ":"),
        ensure_ascii=False,
    )
    text_at = {
        "POLICY": "; ".join(policy),
        "STYLE": style,
        "SCRIPT": script,
        "DATE": escape(catalog.date),
        "MATRIX": "\n".join((*_table_by_driver(catalog), *_table_of_others(catalog))),
        # JSON that no HTML can end.
        "DATA": document.replace("<", "\\u003c"),
    }
    # A place is written ``@NAME@``; what is put in is not looked at again.
    pieces = _part("page.html").split("@")
    return "".join(text_at.get(piece, piece) for piece in pieces) + "\n"


@cache
def _part(name: str) -> str:
    return files("gpuinstall.page").joinpath("data", name).read_text("utf-8").strip()


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _table_by_driver(catalog: Catalog) -> Iterator[str]:
    drivers = known_drivers(catalog)
    every = support(catalog, "linux", "x86_64", kinds_of(catalog), drivers)
    table: Support = condensed(served(every))
    rows = [(named(row.kind), *row.builds) for row in table.rows]
    heads = ("GPU", *table.drivers)
    return _table("NVIDIA GPUs by driver, on Linux", heads, rows)


def _table_of_others(catalog: Catalog) -> Iterator[str]:
    rows = []
    for other in support_of_others(catalog, "linux", "x86_64"):
        if other.build != NOTHING:
            cards = ", ".join(other.chip.products) or other.chip.name
            rows.append((f"{cards} ({other.chip.architecture})", other.os, other.build))
    caption = "Other makers' GPUs: not proven on a card by this project"
    return _table(caption, ("GPU", "system", "build"), rows)


def _table(
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> Iterator[str]:
    label = escape(caption)
    yield f'<div class="wide" role="region" tabindex="0" aria-label="{label}"><table>'
    yield f"<caption>{label}</caption>"
    cells = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    yield f"<thead><tr>{cells}</tr></thead><tbody>"
    for name, *builds in rows:
        cells = "".join(f"<td>{escape(build)}</td>" for build in builds)
        yield f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    yield "</tbody></table></div>"
