"""The page: its frame, style and script, the table of answers, the names of the GPUs, and the matrix, in one text."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog.gpu_names import FORM
from gpuinstall.catalog.gpus import brands, load_gpus
from gpuinstall.page.answers import Answers
from gpuinstall.page.classes import PLATFORMS, kinds_of_gpus
from gpuinstall.page.matrix import matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.page.classes import Kind, Platform


def page(catalog: Catalog, platforms: Sequence[Platform] = PLATFORMS) -> str:
    """Ask ``choose`` for every class of machines (a minute of one processor), and write the page."""
    body = Answers(catalog, platforms).table()
    kinds = kinds_of_gpus(catalog)
    style, script = _part("page.css"), _part("page.js")
    named = {"generations": [kind.name for kind in kinds], "form": FORM.pattern}
    document = {**body, **named, "brands": sorted(brands()), "named_by": load_gpus()["source"]}
    filled = {
        "POLICY": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'",
        "STYLE": style,
        "SCRIPT": script,
        "DATE": escape(catalog.date),
        "MATRIX": matrix(body, kinds),
        "NAMES": _names(kinds),
        "DATA": _embedded(document),
    }
    return _filled(_part("page.html"), filled)


def _names(kinds: Sequence[Kind]) -> str:
    """List the cards of each kind; the script reads them here too."""
    return "\n".join(
        f"<dt>{escape(kind.name)} <small>{kind.sm}</small></dt><dd>{escape(', '.join(kind.cards))}</dd>"
        for kind in kinds
    )


@cache
def _part(name: str) -> str:
    return files("gpuinstall.page").joinpath("data", name).read_text("utf-8").strip()


def _filled(frame: str, filled: Mapping[str, str]) -> str:
    """Put each part in its place, which is a line or a word ``@NAME@``; what is put in is not looked at again."""
    pieces = frame.split("@")
    return "".join(filled.get(piece, piece) for piece in pieces) + "\n"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _embedded(document: Mapping[str, Any]) -> str:
    """Write JSON that no HTML can end."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
