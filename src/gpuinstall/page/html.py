"""The page: its frame, style and script, the table of answers, the names of the GPUs, and the matrices, in one text."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog.gpu_names import FORM
from gpuinstall.catalog.gpus import load_gpus, name_tables
from gpuinstall.page.answers import PLATFORMS, Answers, Kind, Platform, Table, kinds_of_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.catalog import Catalog

    PageColumn = tuple[str, list[str]]

_NOTHING = "–"


def selector_page(catalog: Catalog, platforms: Sequence[Platform] = PLATFORMS) -> str:
    """Ask ``choose`` for every class of machines (a minute of one processor), and write the page."""
    body = Answers(catalog, platforms).table()
    kinds = kinds_of_gpus(catalog)
    style, script = _part("page.css"), _part("page.js")
    named = {"generations": [kind.name for kind in kinds], "form": FORM.pattern}
    document = {**body, **named, "brands": sorted(name_tables()[0].brands), "named_by": load_gpus()["source"]}
    filled = {
        "POLICY": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'",
        "STYLE": style,
        "SCRIPT": script,
        "DATE": escape(catalog.date),
        "MATRIX": _matrix(body, kinds),
        "NAMES": "\n".join(  # the cards of each kind, which the script reads here too
            f"<dt>{escape(kind.name)} <small>{kind.sm}</small></dt><dd>{escape(', '.join(kind.cards))}</dd>"
            for kind in kinds
        ),
        # JSON that no HTML can end
        "DATA": json.dumps(document, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c"),
    }
    # A place is a line or a word ``@NAME@``; what is put in is not looked at again.
    return "".join(filled.get(piece, piece) for piece in _part("page.html").split("@")) + "\n"


def _matrix(body: Mapping[str, Any], kinds: Sequence[Kind]) -> str:
    """Write a table for each choice of packages, with the buttons that show one of them, then that of other makers."""
    table, choices = Table(body), [" + ".join(packages) for packages in body["packages"]]
    driven = [(number, kind) for number, kind in enumerate(kinds) if kind.capability]
    others = [(number, kind) for number, kind in enumerate(kinds) if not kind.capability]
    parts = [f'<input type="radio" name="matrix" id="matrix{n}"{" checked" * (not n)}>' for n in range(len(choices))]
    parts += ['<div class="choices" role="group" aria-label="Packages">']
    parts += [f'<label for="matrix{n}">{escape(choice)}</label>' for n, choice in enumerate(choices)]
    parts += ["</div>"]
    for packages, choice in enumerate(choices):
        parts += [f'<div class="wide" id="table{packages}" role="region" tabindex="0" aria-label="{escape(choice)}">']
        parts += ["<table>", f"<caption>{escape(choice)} on {escape(body['platforms'][0]['name'])}</caption>"]
        parts += [*_lines("driver", _by_branch(table, driven, packages), driven), "</table></div>"]
    parts += ['<div class="wide" id="others" role="region" tabindex="0" aria-label="Other makers"><table>']
    parts += ["<caption>Other makers' cards, by system: not proven on a card by this project</caption>"]
    rows = ((row, [_cell(table, row["key"], number, None) for number, _ in others]) for row in body["platforms"])
    shown = [(row["name"], column) for row, column in rows if any(column)]
    return "\n".join((*parts, *_lines("system", shown, others), "</table></div>"))


@cache
def _part(name: str) -> str:
    return files("gpuinstall.page").joinpath("data", name).read_text("utf-8").strip()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _by_branch(table: Table, driven: Sequence[tuple[int, Kind]], packages: int) -> list[PageColumn]:
    """The builds by branch of drivers; equal neighbours are one column."""
    platform: str = table.body["platforms"][0]["key"]
    columns = [
        (str(branch), [_cell(table, platform, number, branch, packages) for number, _ in driven])
        for branch in table.body["branches"]
    ]
    merged = []
    for column, run in groupby((column for column in columns if any(column[1])), key=itemgetter(1)):
        names = [name for name, _ in run]
        merged.append(("–".join(dict.fromkeys((names[0], names[-1]))), column))
    return merged


def _lines(axis: str, columns: Sequence[PageColumn], kinds: Sequence[tuple[int, Kind]]) -> Iterator[str]:
    """Write the head of a table, and a row for each kind that something runs on."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name, _ in columns)
    yield f'<thead><tr><th scope="col">GPU \\ {axis}</th>{heads}</tr></thead><tbody>'
    for position, (_, kind) in enumerate(kinds):
        cells = [column[position] for _, column in columns]
        if any(cells):
            row = "".join(f"<td>{escape(cell or _NOTHING)}</td>" for cell in cells)
            yield f'<tr><th scope="row">{escape(kind.name)} <small>{kind.sm}</small></th>{row}</tr>'
    yield "</tbody>"


def _cell(table: Table, platform: str, kind: int, branch: int | None, packages: int = 0) -> str:
    """The build that runs on the GPU; nothing where it is left alone."""
    answer = table.answer(platform, [kind], None if branch is None else [branch], packages=packages)
    return f"{answer.build[0]} {answer.build[1]}" if answer and answer.build and answer.outcome[0] != "cpu" else ""
