"""The import graph of gpuinstall's modules.

The graph distinguishes imports that only type checkers read.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import gpuinstall

SOURCE = Path(gpuinstall.__file__).parent


@dataclass(frozen=True)
class Module:
    """A module of gpuinstall, with its imports."""

    name: str
    """The dotted name of the module."""
    path: Path
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    imports: frozenset[str]
    """The dotted names of the modules that it imports."""
    types: frozenset[str]
    """The dotted names of its imports for type checkers."""


def find_package(name: str) -> str:
    """Return the package of a module, such as ``plan`` or ``errors``."""
    names = name.split(".")
    return names[1] if len(names) > 1 else name


@cache
def modules(source: Path = SOURCE) -> dict[str, Module]:
    """Return all modules of gpuinstall by dotted name."""
    paths = {dotted(path, source): path for path in sorted(source.rglob("*.py"))}
    return {name: _read(name, path, set(paths)) for name, path in paths.items()}


def dotted(path: Path, source: Path = SOURCE) -> str:
    """Return the import name of a file."""
    file = path.relative_to(source.parent).with_suffix("")
    module = file.parent if file.name == "__init__" else file
    return ".".join(module.parts)


def _read(name: str, path: Path, known: set[str]) -> Module:
    tree = ast.parse(path.read_text("utf-8"))
    nodes = (*ast.walk(tree),)
    for_type_checkers = set[ast.AST]()
    for node in nodes:
        if _asks_for_type_checkers(node):
            for_type_checkers.update(ast.walk(node))
    imports = set[str]()
    types = set[str]()
    for node in nodes:
        group = types if node in for_type_checkers else imports
        group.update(_imported(node, known))
    return Module(
        name, path, tree, nodes, frozenset(imports - {name}), frozenset(types - {name})
    )


def _asks_for_type_checkers(node: ast.AST) -> bool:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case _:
            return False


def _imported(node: ast.AST, known: set[str]) -> Iterator[str]:
    """Yield imported names: a gpuinstall module, or another full name."""
    match node:
        case ast.Import(names=aliases):
            for alias in aliases:
                yield alias.name
        case ast.ImportFrom(module=str(module), names=aliases):
            members = {f"{module}.{alias.name}" for alias in aliases}
            yield from members & known
            if members - known:
                yield module


def module_graph(*, types: bool = False) -> dict[str, frozenset[str]]:
    """Return module imports; ``types`` adds imports for type checkers."""
    graph = {}
    for name, module in modules().items():
        imports = module.imports | module.types if types else module.imports
        graph[name] = imports & modules().keys()
    return graph


def build_package_graph(*, types: bool = False) -> dict[str, set[str]]:
    """Return imports between packages."""
    graph: dict[str, set[str]] = {}
    for name, imports in module_graph(types=types).items():
        room = find_package(name)
        others = {find_package(other) for other in imports}
        graph.setdefault(room, set()).update(others - {room})
    return graph


def find_import_cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return import cycles, sorted by name."""
    reachable = {node: _reachable(graph, graph[node]) for node in graph}
    groups = set()
    for node, others in reachable.items():
        group = {other for other in others if node in reachable[other]}
        groups.add(frozenset(group | {node}))
    return sorted(sorted(group) for group in groups if len(group) > 1)


def find_imported_modules(roots: Iterable[str]) -> set[str]:
    """Return all gpuinstall modules that running these modules imports."""
    return _reachable(module_graph(), roots)


def _reachable(graph: Mapping[str, Iterable[str]], roots: Iterable[str]) -> set[str]:
    found = set(roots)
    waiting = list(found)
    while waiting:
        new = set(graph[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def public_names(tree: ast.Module) -> set[str]:
    """Return the public functions, classes, and constants of a module."""
    return {name for name in _defined(tree.body) if not name.startswith("_")}


def _defined(statements: Iterable[ast.AST]) -> Iterator[str]:
    """Yield defined names, also inside ``if`` and ``try``."""
    for statement in statements:
        match statement:
            case ast.If() | ast.Try():
                yield from _defined(ast.iter_child_nodes(statement))
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                for node in chain.from_iterable(map(ast.walk, targets)):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        yield node.id
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def format_graph(graph: Mapping[str, Iterable[str]]) -> str:
    """Return a graph as text with one line per node."""
    lines = []
    for node, others in sorted(graph.items()):
        arrow = f"{node} -> {' '.join(sorted(others))}"
        lines.append(f"{arrow.rstrip()}\n")
    return "".join(lines)


if __name__ == "__main__":
    print(format_graph(build_package_graph()), end="")  # noqa: T201
