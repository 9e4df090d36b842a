"""``python -m tools.sentences [ROOM]``: every sentence that a person may read, with its place, to be read aloud.

They are the texts of messages, hints and helps in src (an f-string's values as {…}), the failures' texts, and the
paragraphs of docs; ``--words`` counts them instead.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import tomli

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "gpuinstall"
PROSE = re.compile(r"[A-Za-z]{2,}[,;:]? [\w{“\"'`(-]")
"""Two words beside each other: what has not that is a code, a key or a name."""


def main() -> None:
    """Print the sentences of a room (``cli``, ``docs``, ``failures/data``), or of all, or count their words."""
    rooms = [word for word in sys.argv[1:] if not word.startswith("-")]
    lines = [
        (place, text) for place, text in sentences() if not rooms or place.startswith(tuple(rooms))
    ]
    if "--words" in sys.argv:
        counts: dict[str, int] = {}
        for place, text in lines:
            kind = place.partition("/")[0] if "/" in place else "gpuinstall"
            counts[kind] = counts.get(kind, 0) + len(text.split())
        sys.stdout.write("".join(f"{kind:16}{count:8}\n" for kind, count in sorted(counts.items())))
        return
    sys.stdout.write("".join(f"{place}: {text}\n" for place, text in lines))


def sentences() -> Iterator[tuple[str, str]]:
    """Each text with its place: the file from its root, and the line."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield from of_module(path)
    for path in sorted((SOURCE / "failures" / "data").glob("*.toml")):
        texts = of_values(tomli.loads(path.read_text(encoding="utf-8")))
        yield from ((str(path.relative_to(SOURCE)), text) for text in texts if PROSE.search(text))
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
    ]:
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        place = f"docs/{path.name}"
        yield from (
            (place, " ".join(part.split()))
            for part in re.split(r"\n\s*\n|(?<=[.!?])\s", text)
            if part.strip()
        )


def of_module(path: Path) -> Iterator[tuple[str, str]]:
    """The texts of a module but its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if (
            id(node) in docstrings
            or id(node) in inside
            or not isinstance(node, ast.Constant | ast.JoinedStr)
        ):
            continue
        text = written(node)
        if PROSE.search(text):
            yield f"{path.relative_to(SOURCE)}:{node.lineno}", " ".join(text.split())


def written(node: ast.expr) -> str:
    """A text as it stands in the source, with {…} for each value in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(written, node.values))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "{…}"


def of_values(value: object) -> Iterator[str]:
    """Every text in a document of TOML but patterns."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from of_values(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key not in {"says", "signs", "unless", "code", "id"}:
                yield from of_values(part)


if __name__ == "__main__":
    main()
