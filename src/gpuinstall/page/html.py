"""The page: its frame, style and script, the table of answers, the names of the GPUs, and the matrices, in one text."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog.gpu_names import FORM
from gpuinstall.catalog.gpus import load_gpus, name_tables
from gpuinstall.page.answers import Answers
from gpuinstall.page.classes import PLATFORMS, kinds_of_gpus
from gpuinstall.page.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.page.classes import Kind, Platform

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
        "NAMES": _names(kinds),
        "DATA": _embedded(document),
    }
    return _filled(_part("page.html"), filled)


def _matrix(body: Mapping[str, Any], kinds: Sequence[Kind]) -> str:
    """Write a table for each choice of packages, with the buttons that show one of them, then that of other makers."""
    choices = [" + ".join(packages) for packages in body["packages"]]
    parts = [f'<input type="radio" name="matrix" id="matrix{n}"{" checked" * (not n)}>' for n in range(len(choices))]
    parts += ['<div class="choices" role="group" aria-label="Packages">']
    parts += [f'<label for="matrix{n}">{escape(choice)}</label>' for n, choice in enumerate(choices)]
    parts += ["</div>"]
    for packages, choice in enumerate(choices):
        parts += [f'<div class="wide" id="table{packages}" role="region" tabindex="0" aria-label="{escape(choice)}">']
        parts += ["<table>", f"<caption>{escape(choice)} on {escape(body['platforms'][0]['name'])}</caption>"]
        parts += [*_lines(Table(body), kinds, packages), "</table></div>"]
    parts += ['<div class="wide" id="others" role="region" tabindex="0" aria-label="Other makers"><table>']
    parts += ["<caption>Other makers' cards, by system: none proven on a card by this project</caption>"]
    return "\n".join((*parts, *_lines_of_others(Table(body), kinds), "</table></div>"))


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


def _lines(table: Table, kinds: Sequence[Kind], packages: int) -> Iterator[str]:
    platform: str = table.body["platforms"][0]["key"]
    branches = table.body["branches"]
    driven = [(number, kind) for number, kind in enumerate(kinds) if kind.capability]
    columns = [[_cell(table, platform, number, branch, packages) for number, _ in driven] for branch in branches]
    shown = _merged([(str(branch), column) for branch, column in zip(branches, columns, strict=True) if any(column)])
    heads = "".join(f'<th scope="col">{name}</th>' for name, _ in shown)
    yield f'<thead><tr><th scope="col">GPU \\ driver</th>{heads}</tr></thead><tbody>'
    yield from _rows((kind, [column[position] for _, column in shown]) for position, (_, kind) in enumerate(driven))
    yield "</tbody>"


def _lines_of_others(table: Table, kinds: Sequence[Kind]) -> Iterator[str]:
    others = [(number, kind) for number, kind in enumerate(kinds) if not kind.capability]
    platforms = [(platform["name"], platform["key"]) for platform in table.body["platforms"]]
    columns = [(name, [_cell(table, key, number, None) for number, _ in others]) for name, key in platforms]
    shown = [(name, column) for name, column in columns if any(column)]
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name, _ in shown)
    yield f'<thead><tr><th scope="col">GPU \\ system</th>{heads}</tr></thead><tbody>'
    yield from _rows((kind, [column[position] for _, column in shown]) for position, (_, kind) in enumerate(others))
    yield "</tbody>"


def _rows(rows: Iterable[tuple[Kind, Sequence[str]]]) -> Iterator[str]:
    """Write a row for each kind that something runs on."""
    for kind, cells in rows:
        if any(cells):
            row = "".join(f"<td>{escape(cell or _NOTHING)}</td>" for cell in cells)
            yield f'<tr><th scope="row">{escape(kind.name)} <small>{kind.sm}</small></th>{row}</tr>'


def _cell(table: Table, platform: str, kind: int, branch: int | None, packages: int = 0) -> str:
    """The build that runs on the GPU; nothing where it is left alone."""
    answer = table.answer(platform, [kind], None if branch is None else [branch], packages=packages)
    return f"{answer.build[0]} {answer.build[1]}" if answer and answer.build and answer.outcome[0] != "cpu" else ""


def _merged(columns: Sequence[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """Write equal neighbours as one."""
    merged: list[tuple[str, list[str]]] = []
    for name, column in columns:
        if merged and merged[-1][1] == column:
            merged[-1] = (f"{merged[-1][0].partition('–')[0]}–{name}", column)
        else:
            merged.append((name, column))
    return merged
