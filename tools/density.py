"""Print code metrics: ``python -m tools.density [FOLDER | FILE ...]``.

Each folder or file has one line. No check uses these numbers.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

#: The tokens that count as code, which exclude comments, docstrings, and line breaks.
CODE = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}
COLUMNS = ("modules", "tokens", "code lines", "per line")


def main(folders: list[str]) -> None:
    """Print one line per folder or file, by default for ``src/gpuinstall``."""
    paths = [Path(folder) for folder in folders] or default_folders()
    write_line("folder", COLUMNS)
    for path in paths:
        write_line(str(path), row(measure(path)))


def write_line(folder: str, figures: Sequence[str]) -> None:
    """Write one line of the table."""
    columns = "".join(f"{figure:>11}" for figure in figures)
    sys.stdout.write(f"{folder:38}{columns}\n")


def default_folders() -> list[Path]:
    """Return the source folder and its packages."""
    source = Path("src/gpuinstall")
    rooms = sorted(path.parent for path in source.glob("*/__init__.py"))
    return [source, *rooms]


def measure(folder: Path) -> Counter[str]:
    """Return the counts of all modules below a folder, or of one file."""
    total: Counter[str] = Counter()
    modules = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
    for path in modules:
        total += count(path.read_text(encoding="utf-8"))
    return total


def count(source: str) -> Counter[str]:
    """Return the counts of one module's source.

    Raises:
        SyntaxError: if it is not Python.
    """
    tree = ast.parse(source)
    counts = Counter(modules=1)
    documentation: set[int] = set()
    for docstring in docstrings(tree):
        documentation.update(
            range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)
        )
    code_lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in CODE and token.start[0] not in documentation:
            counts["tokens"] += 1
            code_lines.add(token.start[0])
    counts["code lines"] = len(code_lines)
    return counts


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the docstrings of a module, its classes, functions and fields."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value


def row(counts: Counter[str]) -> tuple[str, ...]:
    """Return the figures of one folder in the order of ``COLUMNS``."""
    return (
        str(counts["modules"]),
        f"{counts['tokens']:,}",
        f"{counts['code lines']:,}",
        f"{counts['tokens'] / max(counts['code lines'], 1):.2f}",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
