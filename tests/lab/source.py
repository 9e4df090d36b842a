"""The source as a graph: which module imports which, at the top, inside functions or for type checkers alone."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import gpuinstall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SOURCE = Path(gpuinstall.__file__).parent


@dataclass(frozen=True)
class Module:
    """One file of the source by its dotted name, with the names of what it imports, ours and others'."""

    name: str
    path: Path
    tree: ast.Module
    imports: frozenset[str]
    types: frozenset[str]

    @property
    def room(self) -> str:
        """The package below gpuinstall, or the module itself where it is in none."""
        return room_of(self.name)


def room_of(name: str) -> str:
    """``plan`` for ``gpuinstall.plan.rules``, ``errors`` for ``gpuinstall.errors``, ``gpuinstall`` for itself."""
    return ".".join(name.split(".")[1:2]) or name


@cache
def modules(source: Path = SOURCE) -> dict[str, Module]:
    """Read every module of the package by its dotted name."""
    paths = {dotted(path, source): path for path in sorted(source.rglob("*.py"))}
    return {name: read(name, path, frozenset(paths)) for name, path in paths.items()}


def dotted(path: Path, source: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read(name: str, path: Path, known: frozenset[str]) -> Module:
    tree = ast.parse(path.read_text("utf-8"))
    guarded = {id(inner) for node in ast.walk(tree) if checked(node) for inner in ast.walk(node)}
    found: dict[bool, set[str]] = {False: set(), True: set()}
    for node in ast.walk(tree):
        found[id(node) in guarded].update(imported(node, known))
    return Module(
        name, path, tree, frozenset(found[False] - {name}), frozenset(found[True] - {name})
    )


def checked(node: ast.AST) -> bool:
    """Say whether this is ``if TYPE_CHECKING``."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def imported(node: ast.AST, known: frozenset[str]) -> Iterator[str]:
    """Name what an import statement reads: a module of ours to its last dot, whatever else by its full name."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        below = {f"{node.module}.{alias.name}" for alias in node.names}
        yield from below & known
        if below - known:
            yield node.module


def module_graph(*, types: bool = False) -> dict[str, set[str]]:
    """Which module of ours imports which; with ``types``, for type checkers too."""
    found = modules()
    return {
        name: {*module.imports, *(module.types if types else ())} & set(found)
        for name, module in found.items()
    }


def room_graph(*, types: bool = False) -> dict[str, set[str]]:
    """Which room imports which."""
    rooms: dict[str, set[str]] = {}
    for name, imports in module_graph(types=types).items():
        room = room_of(name)
        rooms.setdefault(room, set()).update(
            room_of(other) for other in imports if room_of(other) != room
        )
    return rooms


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The groups whose members reach each other (Tarjan's components of more than one), by name."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            found.append(sorted(component))

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(component for component in found if len(component) > 1)


def reached(roots: Iterable[str]) -> set[str]:
    """Every module of ours that running these reads, themselves included."""
    graph, found = module_graph(), set(roots)
    waiting = list(found)
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def words(tree: ast.AST) -> Iterator[str]:
    """Every name in a tree, and every text that is one word: a code, a key, a flag."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg) or (isinstance(node, ast.keyword) and node.arg):
            yield str(node.arg)
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).rpartition(".")[2]
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"[\w.-]+", node.value)
        ):
            yield node.value


def public_names(tree: ast.Module) -> set[str]:
    """The functions, classes and constants that a module defines for others, those below an ``if`` included."""
    statements = list(tree.body)
    for node in statements:
        if isinstance(node, ast.If | ast.Try):
            statements += [
                inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.stmt)
            ]
    names = {node.name for node in statements if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    targets = [
        target for node in statements if isinstance(node, ast.Assign) for target in node.targets
    ]
    targets += [node.target for node in statements if isinstance(node, ast.AnnAssign)]
    names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def parts(word: str) -> set[str]:
    """``CudaVersion``, ``cuda_version`` and ``cuda-version`` are ``cuda`` and ``version``."""
    return set(re.split(r"[\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower())) - {""}


def drawn(graph: Mapping[str, Iterable[str]]) -> str:
    """Write a graph, one line a node."""
    return "".join(
        f"{node} -> {' '.join(sorted(others))}".rstrip() + "\n"
        for node, others in sorted(graph.items())
    )


if __name__ == "__main__":
    print(drawn(room_graph()), end="")  # noqa: T201
