"""The modules of the source that delete something."""

from __future__ import annotations

import ast

from tests.lab.clone import ROOT

DELETING = {"unlink", "rmdir", "rmtree", "removedirs", "remove_file", "remove_path", "dispose"}


def deleting_modules() -> set[str]:
    """Return the modules with code that deletes, as ``install/swap.py``."""
    package = ROOT / "src" / "gpuinstall"
    found = set[str]()
    for file in (*package.rglob("*.py"), ROOT / "bootstrap.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if any(map(_deletes, ast.walk(tree))):
            found.add(
                file.relative_to(package if file.is_relative_to(package) else ROOT).as_posix()
            )
    return found


def _deletes(node: ast.AST) -> bool:
    """Whether a node names something that deletes, to call it or to have it called."""
    names = {getattr(node, "id", None), getattr(node, "attr", None)}
    return bool(names & DELETING)
