"""The names of a Python package, read out of the sources in its wheel: what a program that imports them finds."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.wheels.python_source import parse_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuinstall.wheels.wheel_reader import WheelReader

    #: Each name that a module binds, with the dotted name that it was imported from, if it was.
    _Binding = tuple[str, str | None]

MOST_BYTES = 4 << 20
"""A longer source is generated, and no module of names."""

_SOURCES = (
    ".py",
    ".pyi",
    "/__init__.py",
    "/__init__.pyi",
)
"""What follows the path of a module in that of its source; stubs stand for what is compiled or bound at run time."""
_MODULES = (
    ".py",
    ".pyi",
    ".so",
    ".pyd",
)
"""How the files of modules end."""


class _Module(NamedTuple):
    """What one module binds at its top."""

    origins: Mapping[str, str | None]
    """The names, each with the dotted name that it was imported from, if it was."""

    star_imports: tuple[str, ...]
    """The modules of which it imports ``*``."""

    dynamic_text: str
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

    def _has(self, name: str, visited: frozenset[str]) -> bool:
        module, rest = self._split(name)
        if not module:
            return False
        if not rest:
            return True
        attribute = rest.partition(".")[0]
        return self._binds(module, attribute, visited)

    def _split(self, name: str) -> tuple[str, str]:
        """Return the longest beginning of a dotted name that is a module, and the rest."""
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            rest = ".".join(parts[length:])
            if self._is_module(module):
                return module, rest
        return "", name

    def _is_module(self, name: str) -> bool:
        return name.replace(".", "/") in self._paths

    def _binds(
        self,
        module_name: str,
        name: str,
        visited: frozenset[str],
    ) -> bool:
        key = f"{module_name}.{name}"
        # Two modules may import all of each other.
        if key in visited:
            return False
        visited |= {key}
        module = self._module(module_name)
        if name in module.origins:
            origin = module.origins[name]
            # Of what comes from another package nothing is known.
            if origin is None or not self._is_own(origin):
                return True
            return self._has(origin, visited)
        for other in module.star_imports:
            if self._binds(other, name, visited):
                return True
        return name in module.dynamic_text

    def _is_own(self, name: str) -> bool:
        """Whether a dotted name is of this wheel."""
        package = name.partition(".")[0]
        return self._is_module(package)

    def _module(self, name: str) -> _Module:
        if name not in self._modules:
            self._modules[name] = self._read_module(name)
        return self._modules[name]

    def _read_module(self, module: str) -> _Module:
        origins: dict[str, str | None] = {}
        star_imports = []
        dynamic_text = ""
        for suffix in _SOURCES:
            text = self._read_source(module, suffix)
            package = module
            if "__init__" not in suffix:
                package = module.rpartition(".")[0]
            for name, origin in _parse_bindings(text, package):
                if name == "*":
                    star_imports.append(origin or "")
                else:
                    origins.setdefault(name, origin)
            if "__getattr__" in origins:
                dynamic_text += text
        return _Module(
            origins=origins,
            star_imports=tuple(star_imports),
            dynamic_text=dynamic_text,
        )

    def _read_source(self, module: str, suffix: str) -> str:
        """Return a source of a module; empty if there is none, or it is generated."""
        path = module.replace(".", "/")
        member = self._wheel.members.get(f"{path}{suffix}")
        if member is None or member.file_size > MOST_BYTES:
            return ""
        data = self._wheel.read(member.filename)
        return data.decode("utf-8", "replace")


def _module_paths(members: Iterable[str]) -> set[str]:
    """Return the paths of all modules and packages, without what is behind the first dot.

    A compiled one has the interpreter there: ``torch/_C.cpython-311-x86_64-linux-gnu.so``.
    """
    paths = set()
    for member in members:
        if not member.endswith(_MODULES):
            continue
        path = member.partition(".")[0]
        while path:
            paths.add(path)
            path = path.rpartition("/")[0]
    return paths


def _parse_bindings(text: str, package: str) -> Iterator[_Binding]:
    """Yield what a source binds; nothing if it is of a newer Python than this one."""
    with suppress(SyntaxError):
        tree = parse_source(text)
        yield from _bindings(tree, package)


def _bindings(tree: ast.AST, package: str) -> Iterator[_Binding]:
    """Yield what a module binds outside functions and classes, in whatever branch."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    top = alias.name.partition(".")[0]
                    yield alias.asname or top, None
            case ast.ImportFrom():
                yield from _imports_from(node, package)
            case ast.FunctionDef() if _only_raises(node):
                continue
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                yield node.name, None
            case ast.Name(ctx=ast.Store()):
                yield node.id, None
            case ast.Lambda():
                continue
            case _:
                yield from _bindings(node, package)


def _imports_from(node: ast.ImportFrom, package: str) -> Iterator[_Binding]:
    module = _absolute(node, package)
    for alias in node.names:
        origin = module
        if alias.name != "*":
            origin = f"{module}.{alias.name}"
        yield alias.asname or alias.name, origin


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the module that ``from … import`` names, in a module of ``package``."""
    if not node.level:
        return node.module or ""
    parents = package.split(".")
    parts = parents[: len(parents) - node.level + 1]
    if node.module:
        parts.append(node.module)
    return ".".join(parts)


def _only_raises(function: ast.FunctionDef) -> bool:
    body = function.body
    if ast.get_docstring(function) is not None:
        body = body[1:]
    return len(body) == 1 and isinstance(body[0], ast.Raise)
