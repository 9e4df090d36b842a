"""The matrix: GPUs by driver branches, the newest torch in each cell, for each choice of packages; plain HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from gpuinstall.page.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

NOTHING = "–"


def matrix(body: Mapping[str, Any], generations: Mapping[str, str]) -> str:
    """Write a table for each choice of packages, with the buttons that show one of them."""
    choices = [" + ".join(packages) for packages in body["packages"]]
    parts = [f'<input type="radio" name="matrix" id="matrix{n}"{" checked" * (not n)}>' for n in range(len(choices))]
    parts += ['<div class="choices" role="group" aria-label="Packages">']
    parts += [f'<label for="matrix{n}">{escape(choice)}</label>' for n, choice in enumerate(choices)]
    parts += ["</div>"]
    for packages, choice in enumerate(choices):
        parts += [f'<div class="wide" id="table{packages}" role="region" tabindex="0" aria-label="{escape(choice)}">']
        parts += ["<table>", f"<caption>{escape(choice)} on {escape(body['platforms'][0]['name'])}</caption>"]
        parts += [*_lines(Table(body), generations, packages), "</table></div>"]
    return "\n".join(parts)


def _lines(table: Table, generations: Mapping[str, str], packages: int) -> Iterator[str]:
    platform: str = table.body["platforms"][0]["key"]
    branches = table.body["branches"]
    columns = [
        [_cell(table, platform, kind, branch, packages) for kind in range(len(generations))] for branch in branches
    ]
    shown = _merged([(str(branch), column) for branch, column in zip(branches, columns, strict=True) if any(column)])
    heads = "".join(f'<th scope="col">{name}</th>' for name, _ in shown)
    yield f'<thead><tr><th scope="col">GPU \\ driver</th>{heads}</tr></thead><tbody>'
    for number, (kind, generation) in enumerate(generations.items()):
        cells = [column[number] for _, column in shown]
        if any(cells):
            row = "".join(f"<td>{escape(cell or NOTHING)}</td>" for cell in cells)
            yield f'<tr><th scope="row">{escape(generation)} <small>{kind}</small></th>{row}</tr>'
    yield "</tbody>"


def _cell(table: Table, platform: str, kind: int, branch: int, packages: int) -> str:
    found = table.answer(platform, [kind], [branch], packages=packages)
    return f"{found.build[0]} {found.build[1]}" if found and found.build else ""


def _merged(columns: Sequence[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """Write equal neighbours as one."""
    merged: list[tuple[str, list[str]]] = []
    for name, column in columns:
        if merged and merged[-1][1] == column:
            merged[-1] = (f"{merged[-1][0].partition('–')[0]}–{name}", column)
        else:
            merged.append((name, column))
    return merged
