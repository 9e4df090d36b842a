"""The names of a Python package, read out of the sources in its wheel: what a program that imports them finds."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuinstall.wheels.wheel_reader import WheelReader

MOST_BYTES = 4 << 20
"""A longer source is generated, and no module of names."""


_SUFFIXES = (".py", ".pyi", "/__init__.py", "/__init__.pyi")
_OF_MODULES = (".py", ".pyi", ".so", ".pyd")


class _Module(NamedTuple):
    """What one module binds at its top."""

    names: Mapping[str, str | None]
    """The names, each with the dotted name that it was imported from, if it was."""

    all_of: tuple[str, ...]
    """The modules of which it imports ``*``."""

    on_demand: str
    """The text of a module with ``__getattr__``, which gives what is nowhere bound; empty without one."""


class PythonNames:
    """The names in a wheel; each module is read once, when it is asked for."""

    def __init__(self, wheel: WheelReader) -> None:
        self._wheel = wheel
        self._paths = _module_paths(wheel.members)
        self._modules: dict[str, _Module] = {}

    def has(self, name: str) -> bool:
        """Whether a dotted name is there, such as ``torchvision.models.utils.load_state_dict_from_url``.

        Of the attributes of a class or a function nothing is known: they count as there. A function that does nothing
        but raise counts as gone, as ``torch.symeig``.

        Raises:
            WheelError: if the wheel cannot be read.
        """
        return self._has(name, frozenset())

    def _has(self, name: str, passed: frozenset[str]) -> bool:
        module, rest = self._split(name)
        if not module:
            return False
        if not rest:
            return True
        return self._binds(module, rest.partition(".")[0], passed)

    def _split(self, name: str) -> tuple[str, str]:
        """Return the longest beginning of a dotted name that is a module, and the rest."""
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if self._is_module(module):
                return module, ".".join(parts[length:])
        return "", name

    def _is_module(self, name: str) -> bool:
        return name.replace(".", "/") in self._paths

    def _binds(self, module: str, name: str, passed: frozenset[str]) -> bool:
        key = f"{module}.{name}"
        if key in passed:  # two modules that import all of each other
            return False
        passed |= {key}
        read = self._read(module)
        if name in read.names:
            source = read.names[name]
            return source is None or not self._is_own(source) or self._has(source, passed)
        if any(self._binds(other, name, passed) for other in read.all_of):
            return True
        return name in read.on_demand

    def _is_own(self, name: str) -> bool:
        """Whether a dotted name is of this wheel: of another package nothing is known."""
        return self._is_module(name.partition(".")[0])

    def _read(self, module: str) -> _Module:
        if module not in self._modules:
            self._modules[module] = self._parsed(module)
        return self._modules[module]

    def _parsed(self, module: str) -> _Module:
        """Read the sources of a module: of a compiled one, and of what is bound at run time, its stubs."""
        path = module.replace(".", "/")
        names: dict[str, str | None] = {}
        all_of: list[str] = []
        on_demand = ""
        for suffix in _SUFFIXES:
            member = self._wheel.members.get(f"{path}{suffix}")
            if member is None or member.file_size > MOST_BYTES:
                continue
            text = self._wheel.read(member.filename).decode("utf-8", "replace")
            package = module if "__init__" in suffix else module.rpartition(".")[0]
            with suppress(SyntaxError):  # of a newer Python than this one
                for name, source in _bindings(ast.parse(text), package):
                    if name == "*":
                        all_of.append(source or "")
                    else:
                        names.setdefault(name, source)
            if "__getattr__" in names:
                on_demand += text
        return _Module(names, tuple(all_of), on_demand)


def _module_paths(members: Iterable[str]) -> set[str]:
    """Return the paths of all modules and packages, without what is behind the first dot.

    A compiled one has the interpreter there: ``torch/_C.cpython-311-x86_64-linux-gnu.so``.
    """
    paths = set()
    for member in members:
        if member.endswith(_OF_MODULES):
            path = member.partition(".")[0]
            while path:
                paths.add(path)
                path = path.rpartition("/")[0]
    return paths


def _bindings(tree: ast.AST, package: str) -> Iterator[tuple[str, str | None]]:
    """Yield what a module binds outside functions and classes, in whatever branch, with where it is imported from."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(node, package)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            if not _only_raises(node):
                yield node.name, None
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                yield node.id, None
        elif not isinstance(node, ast.Lambda):
            yield from _bindings(node, package)


def _imports(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str | None]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], None
        return
    origin = _origin(node, package)
    for alias in node.names:
        source = origin if alias.name == "*" else f"{origin}.{alias.name}"
        yield alias.asname or alias.name, source


def _origin(node: ast.ImportFrom, package: str) -> str:
    """Return the module that ``from … import`` names, in a module of ``package``."""
    if not node.level:
        return node.module or ""
    parents = package.split(".")
    own = parents[: len(parents) - node.level + 1]
    return ".".join([*own, node.module] if node.module else own)


def _only_raises(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef):
        return False
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return len(body) == 1 and isinstance(body[0], ast.Raise)
