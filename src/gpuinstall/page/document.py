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
    NO_BUILD,
    capabilities_by_kind,
    known_drivers,
    label_of_kind,
    leave_out_empty,
    merge_equal_neighbours,
    support,
    support_of_others,
)

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog

_LINUX = ("linux", "x86_64")
"""The one system of the tables, which has the most builds; Apple's chips bring their own."""


def selector_page(catalog: Catalog, platforms: Sequence[Platform] = PLATFORMS) -> str:
    """Return the page for a catalogue; asking ``choose`` for all answers takes seconds."""
    style = _part("page.css")
    script = _part("page.js")
    policy = (
        "default-src 'none'",
        f"style-src {_csp_source(style)}",
        f"script-src {_csp_source(script)}",
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
        # "</script>" in an answer would end the element; JSON may write "<" as \u003c.
        "DATA": document.replace("<", "\\u003c"),
    }
    # Every second piece is a name, written ``@NAME@``; in a text that is put in, an @ means nothing.
    pieces = _part("page.html").split("@")
    pieces[1::2] = [text_at[name] for name in pieces[1::2]]
    return "".join(pieces) + "\n"


@cache
def _part(name: str) -> str:
    return files("gpuinstall.page").joinpath("data", name).read_text("utf-8").strip()


def _csp_source(text: str) -> str:
    """Return what allows one style or script in a Content-Security-Policy: the exact text between its tags."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _table_by_driver(catalog: Catalog) -> Iterator[str]:
    capabilities = capabilities_by_kind(catalog)
    every = support(catalog, *_LINUX, capabilities, known_drivers(catalog))
    table = merge_equal_neighbours(leave_out_empty(every))
    rows = [(label_of_kind(row.kind), *row.builds) for row in table.rows]
    heads = ("GPU", *table.drivers)
    return _table("NVIDIA GPUs by driver, on Linux", heads, rows)


def _table_of_others(catalog: Catalog) -> Iterator[str]:
    rows = []
    for other in support_of_others(catalog, *_LINUX):
        if other.build != NO_BUILD:
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
    for name, *values in rows:
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        yield f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    yield "</tbody></table></div>"
