"""Which native libraries the import of a package loads, as its Python says; nothing of it is run.

The modules that ``import package`` executes are read and parsed. A library that one of them opens must load; one that
is opened in a ``try`` whose failure is passed over may be missing. What is opened under a condition, or in a function
that no module calls, is not decided here.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
from enum import Enum
from fnmatch import fnmatch
from posixpath import basename, dirname
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gpuinstall.wheels.wheel_reader import WheelReader

    _Block = Sequence[ast.stmt]

_LIBRARY = re.compile(r"[\w./+-]{1,250}\.(so(\.[\w.]+)?|pyd|dll)", re.ASCII)
_BUNDLED = re.compile(r"[^/]+\.libs/.+")
"""Where auditwheel puts the libraries of others."""
_DATA = re.compile(r"[^/]+\.data/(purelib|platlib)/")
"""Folders whose files are installed beside the others."""

_ENTRY = re.compile(r"^[^\[=\n]+=\s*([\w.]+)", re.MULTILINE)
"""The module of a line of ``entry_points.txt``."""

_LOADERS = frozenset({"CDLL", "PyDLL", "LoadLibrary", "load_library", "load_op_library", "dlopen"})
"""The functions of ctypes, torch, NumPy, TensorFlow and cffi that open a library."""
_IMPORTERS = frozenset({"import_module", "__import__"})
_GPU_TESTS = frozenset({"is_available", "device_count"})
"""Conditions that hold on the machines that a lock for GPUs is made for."""

MOST_MODULES = 160
"""How many modules of a package to read; one that imports more is not decided."""
MOST_SOURCE = 6 << 20
"""How many packed bytes of them."""
MOST_REQUESTS = 32
MOST_WAVES = 10
"""How many times modules may lead to further ones: each costs some requests."""


class Loading(Enum):
    """Whether a package works without a library."""

    REQUIRED = "required"
    """Its import fails without it, or a row says so."""
    OPTIONAL = "optional"
    """It is made to do without it."""
    UNKNOWN = "unknown"


def weaker(loading: Loading, other: Loading) -> Loading:
    """Return what holds of code inside other code: a ``try`` outweighs a condition."""
    if Loading.OPTIONAL in {loading, other}:
        return Loading.OPTIONAL
    return loading if other is Loading.REQUIRED else other


@dataclass(frozen=True)
class ImportedLibraries:
    """The libraries of a wheel that the import of its package opens."""

    required: frozenset[str] = frozenset()
    """Their paths in the wheel."""
    optional: frozenset[str] = frozenset()
    """Those that it opens in a ``try`` alone."""
    possible: frozenset[str] = frozenset()
    """Those that it opens under a condition."""

    def loading(self, path: str) -> Loading:
        """Return whether the package works without a library."""
        if path in self.required:
            return Loading.REQUIRED
        if path in self.optional:
            return Loading.OPTIONAL
        return Loading.UNKNOWN


def read_imports(wheel: WheelReader, package: str) -> ImportedLibraries:
    """Return what ``import package`` opens of a wheel's own libraries; nothing if that would need too much reading.

    Args:
        wheel: The wheel.
        package: Its package, by its normalized name.

    Raises:
        WheelError: if the wheel is malformed.
    """
    files = {_DATA.sub("", path): path for path in wheel.members}
    walk = _Walk(files)
    for name in _roots(files, package) or _entry_points(wheel):
        walk.visit_module(name, loading=Loading.REQUIRED)
    source_bytes = 0
    last_request = wheel.requests + MOST_REQUESTS
    for _ in range(MOST_WAVES):
        wave = walk.unread_modules()
        if not wave:
            break
        source_bytes += sum(wheel.members[path].compress_size for path in wave)
        is_large = len(walk.sources) + len(wave) > MOST_MODULES or source_bytes > MOST_SOURCE
        if is_large or wheel.requests > last_request:
            return ImportedLibraries()
        for path, data in wheel.read_together(wave).items():
            walk.add_source(path, data)
        walk.advance()
    if walk.unread_modules():
        return ImportedLibraries()
    return walk.result()


def _roots(files: Mapping[str, str], package: str) -> list[str]:
    """Return the module that a package is named after; else all that the wheel has at its top."""
    tops = set()
    for path in files:
        first, _, rest = path.partition("/")
        if rest == "__init__.py":
            tops.add(first)
        elif not rest and (path.endswith(".py") or _LIBRARY.fullmatch(path)):
            tops.add(first.partition(".")[0])
    named = package.replace("-", "_")
    own = [top for top in tops if top.lower() == named]
    return own or sorted(tops)


def _entry_points(wheel: WheelReader) -> list[str]:
    """Return the modules by which a wheel that adds to other packages is found."""
    modules = []
    for name in wheel.members:
        if name.endswith(".dist-info/entry_points.txt"):
            text = wheel.read(name).decode("utf-8", "replace")
            modules += _ENTRY.findall(text)
    return modules


class _Step(NamedTuple):
    """Code that an import executes."""

    path: str
    function: str | None
    """None: the module itself."""
    loading: Loading
    """Whether the package works if this fails."""


@dataclasses.dataclass
class _Source:
    """A module that was parsed."""

    name: str
    is_package: bool
    tree: ast.Module
    functions: dict[str, ast.FunctionDef] = dataclasses.field(default_factory=dict)
    """Those at its top."""
    imported: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    """Names that come from other modules: the module, and the name there."""

    @classmethod
    def parse(cls, name: str, data: bytes, *, is_package: bool) -> _Source:
        """Return a module; one that is no Python has no statements."""
        try:
            tree = ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.Module([], [])
        source = cls(name, is_package, tree)
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef):
                source.functions[statement.name] = statement
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                module = source.absolute(node)
                for alias in node.names:
                    source.imported[alias.asname or alias.name] = (module, alias.name)
        return source

    def absolute(self, node: ast.ImportFrom) -> str:
        """Return the whole name of the module that is imported from."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        up = node.level - 1 if self.is_package else node.level
        parts = parts[: len(parts) - up]
        if node.module:
            parts.append(node.module)
        return ".".join(parts)


class _Walk:
    """The modules that an import reaches, in waves: what one wave names, the next one reads."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        """The files of a wheel as they are installed, with their paths in it."""
        self.sources: dict[str, _Source] = {}
        self._modules = _module_files(files)
        own = [path for path in files if _LIBRARY.fullmatch(path) and not _BUNDLED.match(path)]
        self._libraries = own
        self._steps: list[_Step] = []
        self._done: set[_Step] = set()
        self._opened: dict[Loading, set[str]] = {loading: set() for loading in Loading}

    def result(self) -> ImportedLibraries:
        """Return what was opened so far."""
        opened = self._opened
        only_optional = (
            opened[Loading.OPTIONAL] - opened[Loading.REQUIRED] - opened[Loading.UNKNOWN]
        )
        required = {self.files[path] for path in opened[Loading.REQUIRED]}
        optional = {self.files[path] for path in only_optional}
        possible = {self.files[path] for path in opened[Loading.UNKNOWN]}
        return ImportedLibraries(
            frozenset(required),
            frozenset(optional),
            frozenset(possible) - required,
        )

    def unread_modules(self) -> list[str]:
        """Return the paths in the wheel of the modules to read next."""
        paths = {step.path for step in self._steps if step.path not in self.sources}
        return sorted(self.files[path] for path in paths)

    def add_source(self, member: str, data: bytes) -> None:
        """Add what was read of a module."""
        path = _DATA.sub("", member)
        stem = path.removesuffix(".py")
        is_package = basename(path) == "__init__.py"
        if is_package:
            stem = dirname(path)
        name = stem.replace("/", ".")
        self.sources[path] = _Source.parse(name, data, is_package=is_package)

    def advance(self) -> None:
        """Execute every step whose module was read; what needs another module waits."""
        while True:
            ready = [step for step in self._steps if step.path in self.sources]
            if not ready:
                return
            self._steps = [step for step in self._steps if step.path not in self.sources]
            for step in ready:
                if step not in self._done:
                    self._done.add(step)
                    self._execute(step)

    def visit_module(self, name: str, *, loading: Loading) -> bool:
        """Import a module with the packages that it lies in; return whether the wheel has it."""
        parts = name.split(".")
        has_it = False
        for end in range(1, len(parts) + 1):
            path = self._modules.get(".".join(parts[:end]))
            has_it = path is not None
            if path is None:
                continue
            if path.endswith(".py"):
                self._steps.append(_Step(path, None, loading))
            else:
                self.open_library(path, loading=loading)
        return has_it

    def open_library(self, path: str, *, loading: Loading) -> None:
        """Note a library that is opened."""
        self._opened[loading].add(path)

    def open_named(self, texts: Collection[str], *, loading: Loading) -> None:
        """Note the libraries that a call names; the only one that the wheel has, if it names none."""
        matching = [path for path in self._libraries if _is_named(path, texts)]
        if not matching and len(self._libraries) == 1:
            matching = self._libraries
        for path in matching:
            self.open_library(path, loading=loading)

    def call(self, source: _Source, path: str, name: str, *, loading: Loading) -> None:
        """Go on in a function of the same module, or of one that it was imported from."""
        if name in source.functions:
            self._steps.append(_Step(path, name, loading))
            return
        module, function = source.imported.get(name, ("", ""))
        origin = self._modules.get(module)
        if origin and origin.endswith(".py"):
            self._steps.append(_Step(origin, function, loading))

    def _execute(self, step: _Step) -> None:
        source = self.sources[step.path]
        block: _Block = source.tree.body
        if step.function is not None:
            definition = source.functions.get(step.function)
            if definition is None:
                return
            block = definition.body
        _Visitor(self, source, step.path, block).visit(block, loading=step.loading)


def _module_files(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files by the names that their modules are imported by."""
    modules = {}
    # A package counts before a module of the same name, a module of Python before a library.
    for path in sorted(files, key=lambda path: not _LIBRARY.fullmatch(path)):
        folder, _, file = path.rpartition("/")
        prefix = folder.replace("/", ".") + "." if folder else ""
        if path.endswith("/__init__.py"):
            modules[prefix.rstrip(".")] = path
        elif path.endswith(".py"):
            modules.setdefault(f"{prefix}{file[:-3]}", path)
        elif _LIBRARY.fullmatch(path):
            modules[f"{prefix}{file.partition('.')[0]}"] = path
    return modules


def _is_named(path: str, texts: Collection[str]) -> bool:
    """Whether one of the strings of a call is a library's name, the beginning of it, or a pattern for it."""
    file = basename(path)
    for text in texts:
        name = basename(text)
        stem = name.partition(".so")[0]
        if len(stem) < 2:
            continue
        if fnmatch(file, name) or file.startswith((f"{stem}.", f"lib{stem}.")):
            return True
    return False


class _Visitor:
    """One block of statements, in the order in which they are executed."""

    def __init__(self, walk: _Walk, source: _Source, path: str, block: _Block) -> None:
        self._walk = walk
        self._source = source
        self._path = path
        self._scope = block

    def visit(self, block: _Block, *, loading: Loading) -> None:
        """Note what the statements of a block open."""
        for statement in block:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    continue
                case ast.ClassDef():
                    self.visit(statement.body, loading=loading)
                case ast.Try():
                    self._visit_try(statement, loading=loading)
                case ast.If():
                    self._visit_if(statement, loading=loading)
                case ast.With():
                    is_suppressed = any("suppress" in ast.dump(item) for item in statement.items)
                    self._visit_calls(statement.items, loading=loading)
                    inner = weaker(loading, Loading.OPTIONAL) if is_suppressed else loading
                    self.visit(statement.body, loading=inner)
                case ast.For():
                    self._visit_calls([statement.iter], loading=loading)
                    self.visit(statement.body, loading=loading)
                case ast.While():
                    self.visit(statement.body, loading=loading)
                case ast.Import() | ast.ImportFrom():
                    self._visit_import(statement, loading=loading)
                case _:
                    self._visit_calls([statement], loading=loading)

    def _visit_try(self, statement: ast.Try, *, loading: Loading) -> None:
        passes = bool(statement.handlers) and not any(map(_raises, statement.handlers))
        # Of several places that are tried in turn, the failure of the last is raised behind them.
        others = [other for other in self._scope if other is not statement]
        passes = passes and not any(_raises(other) for other in others)
        for block in (statement.body, statement.orelse):
            self.visit(block, loading=weaker(loading, Loading.OPTIONAL) if passes else loading)
        for handler in statement.handlers:
            self.visit(handler.body, loading=weaker(loading, Loading.UNKNOWN))
        self.visit(statement.finalbody, loading=loading)

    def _visit_if(self, statement: ast.If, *, loading: Loading) -> None:
        names = set(_names(statement.test))
        self._visit_calls([statement.test], loading=loading)
        if "TYPE_CHECKING" in names:
            self.visit(statement.orelse, loading=loading)
            return
        if "__name__" in names:
            return
        is_negated = isinstance(statement.test, ast.UnaryOp)
        holds = bool(names & _GPU_TESTS) and not is_negated
        self.visit(statement.body, loading=loading if holds else weaker(loading, Loading.UNKNOWN))
        self.visit(statement.orelse, loading=weaker(loading, Loading.UNKNOWN))

    def _visit_import(
        self,
        statement: ast.Import | ast.ImportFrom,
        *,
        loading: Loading,
    ) -> None:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                self._walk.visit_module(alias.name, loading=loading)
            return
        module = self._source.absolute(statement)
        self._walk.visit_module(module, loading=loading)
        for alias in statement.names:
            self._walk.visit_module(f"{module}.{alias.name}", loading=loading)

    def _visit_calls(self, nodes: Sequence[ast.AST], *, loading: Loading) -> None:
        """Note what the calls in expressions open."""
        for call in _calls(nodes):
            name = _last(call.func)
            texts = _texts([call])
            if name in _LOADERS:
                # A path that was put together before: what the block names.
                known = [text for text in texts if "." in text] or _texts(self._scope)
                self._walk.open_named(known, loading=loading)
            elif name in _IMPORTERS:
                for text in texts:
                    self._import_text(text, loading=loading)
            else:
                self._walk.call(self._source, self._path, name, loading=loading)

    def _import_text(self, text: str, *, loading: Loading) -> None:
        module = text
        if text.startswith("."):
            parts = self._source.name.split(".")
            package = parts if self._source.is_package else parts[:-1]
            module = ".".join([*package, text.lstrip(".")])
        self._walk.visit_module(module, loading=loading)


def _raises(node: ast.AST) -> bool:
    """Whether a statement raises, other than in a function that it defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return False
    if isinstance(node, ast.Raise):
        return True
    return any(map(_raises, ast.iter_child_nodes(node)))


def _calls(nodes: Sequence[ast.AST]) -> Iterator[ast.Call]:
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                yield inner


def _last(function: ast.expr) -> str:
    """Return the last part of the name of a function that is called."""
    if isinstance(function, ast.Attribute):
        return function.attr
    if isinstance(function, ast.Name):
        return function.id
    return ""


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names in an expression, with those of attributes."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr


def _texts(nodes: Sequence[ast.AST]) -> list[str]:
    """Return the strings in code."""
    inner = itertools.chain.from_iterable(map(ast.walk, nodes))
    constants = [node.value for node in inner if isinstance(node, ast.Constant)]
    return [value for value in constants if isinstance(value, str)]
