"""``python -m tools.sentences [ROOM]``: every sentence that a person may read, with its place, to be read aloud.

They are the texts of messages, hints and helps in src (an f-string's values as {…}), the failures' texts, and the
paragraphs of docs; ``--words`` counts them instead.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
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
    rooms = tuple(word for word in sys.argv[1:] if not word.startswith("-"))
    lines = list(sentences())
    if rooms:
        lines = [(place, text) for place, text in lines if place.startswith(rooms)]
    if "--words" in sys.argv:
        write_counts(lines)
        return
    for place, text in lines:
        sys.stdout.write(f"{place}: {text}\n")


def write_counts(lines: list[tuple[str, str]]) -> None:
    """Write how many words each room has."""
    counts: Counter[str] = Counter()
    for place, text in lines:
        room, slash, _ = place.partition("/")
        counts[room if slash else "gpuinstall"] += len(text.split())
    for room, count in sorted(counts.items()):
        sys.stdout.write(f"{room:16}{count:8}\n")


def sentences() -> Iterator[tuple[str, str]]:
    """Yield each text with its place: the file from its root, and in a module the line."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield from of_module(path)
    for path in sorted((SOURCE / "failures" / "data").glob("*.toml")):
        for text in of_values(tomli.loads(path.read_text(encoding="utf-8"))):
            if PROSE.search(text):
                yield str(path.relative_to(SOURCE)), text
    pages = sorted((ROOT / "docs").glob("*.md"))
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages):
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for part in re.split(r"\n\s*\n|(?<=[.!?])\s", text):
            if part.strip():
                yield f"docs/{path.name}", " ".join(part.split())


def of_module(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts of a module but its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Module(body=[ast.Expr(value=docstring), *_])
                | ast.ClassDef(body=[ast.Expr(value=docstring), *_])
                | ast.FunctionDef(body=[ast.Expr(value=docstring), *_])
            ):
                skipped.add(docstring)
            case ast.JoinedStr(values=parts):
                # They are told with the whole.
                skipped.update(parts)
    for node in ast.walk(tree):
        if node in skipped or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        text = written(node)
        if PROSE.search(text):
            yield f"{path.relative_to(SOURCE)}:{node.lineno}", " ".join(text.split())


def written(node: ast.expr) -> str:
    """Return a text as it stands in the source, with {…} for each value in it."""
    match node:
        case ast.JoinedStr(values=parts):
            return "".join(map(written, parts))
        case ast.Constant(value=str() as text):
            return text
        case _:
            return "{…}"


def of_values(value: object) -> Iterator[str]:
    """Yield every text in a document of TOML but patterns."""
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
