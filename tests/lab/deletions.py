"""Every place in the source that deletes something, by the function it stands in."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.lab.clone import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DELETING = {"unlink", "rmdir", "rmtree", "removedirs", "remove_file", "remove_path", "dispose"}
_PRIMITIVES = {"files.py remove_file", "files.py remove_path", "files.py _remove_deep"}
"""What the others call, with a path of theirs."""


def deletions() -> set[str]:
    """Return the functions that delete, as ``install/swap.py finish_swap``."""
    package = ROOT / "src" / "gpuinstall"
    found = set[str]()
    for file in (*package.rglob("*.py"), ROOT / "bootstrap.py"):
        name = file.relative_to(package if file.is_relative_to(package) else ROOT).as_posix()
        found.update(f"{name} {function}" for function in _functions(file))
    return found - _PRIMITIVES


def _functions(file: Path) -> Iterator[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(_deletes, ast.walk(node))):
            yield node.name


def _deletes(node: ast.AST) -> bool:
    """Whether a node names something that deletes, to call it or to have it called."""
    names = {getattr(node, "id", None), getattr(node, "attr", None)}
    return bool(names & DELETING)


if __name__ == "__main__":
    print("\n".join(sorted(deletions())))  # noqa: T201
