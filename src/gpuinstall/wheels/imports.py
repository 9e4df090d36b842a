"""Which native libraries the import of a package loads, as its Python says; nothing of it is run.

The modules that ``import package`` executes are read and parsed. A library that one of them opens must load; one that
is opened in a ``try`` whose failure is passed over may be missing. What is opened under a condition, or in a function
that no module calls, is not decided here.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections import defaultdict
from enum import Enum
from fnmatch import fnmatch
from posixpath import basename
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.values import dataclass
from gpuinstall.wheels.python_source import parse_source

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

_LOADERS = frozenset(
    {
        "CDLL",
        "PyDLL",
        "LoadLibrary",
        "load_library",
        "load_op_library",
        "dlopen",
    }
)
"""The functions of ctypes, torch, NumPy, TensorFlow and cffi that open a library."""
_IMPORTERS = frozenset({"import_module", "__import__"})
"""The functions that import a module by its name."""
_NOT_IN_IMPORT = frozenset({"TYPE_CHECKING", "__name__"})
"""Conditions that hold for a type checker or a program, and not for what is imported."""
_GPU_TESTS = frozenset({"is_available", "device_count"})
"""Conditions that hold on the machines that a lock for GPUs is made for."""

MOST_MODULES = 160
"""How many modules of a package to read; one that imports more is not decided."""
MOST_SOURCE = 6 << 20
"""How many packed bytes of them."""
MOST_REQUESTS = 32
"""After how many requests of this package no further wave is read."""
MOST_WAVES = 10
"""How many times modules may lead to further ones: each costs some requests."""


class Loading(Enum):
    """Whether a package works without a library."""

    REQUIRED = "required"
    """Its import fails without it, or a row says so."""
    OPTIONAL = "optional"
    """It is made to do without it."""
    LATER = "later"
    """Its import does not open it: only what asks for it needs it."""
    UNKNOWN = "unknown"


def weaker(loading: Loading, other: Loading) -> Loading:
    """Return what holds of code inside other code: a ``try`` outweighs a condition."""
    if Loading.OPTIONAL in {loading, other}:
        return Loading.OPTIONAL
    if Loading.UNKNOWN in {loading, other}:
        return Loading.UNKNOWN
    return Loading.REQUIRED


@dataclass(frozen=True)
class ImportedLibraries:
    """The libraries of a wheel that the import of its package opens."""

    required: frozenset[str] = frozenset()
    """Their paths in the wheel."""
    optional: frozenset[str] = frozenset()
    """Those that it opens in a ``try`` alone."""
    possible: frozenset[str] = frozenset()
    """Those that it opens under a condition."""
    is_decided: bool = False
    """Whether every module that the import reaches was read."""


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
    modules = _roots(files, package) or _entry_points(wheel)
    if not modules:
        return ImportedLibraries()
    for name in modules:
        walk.import_module(name, Loading.REQUIRED)

    source_bytes = 0
    last_request = wheel.requests + MOST_REQUESTS
    for _ in range(MOST_WAVES):
        wave = walk.unread_modules()
        if not wave:
            break
        for path in wave:
            source_bytes += wheel.members[path].compress_size
        has_many = len(walk.sources) + len(wave) > MOST_MODULES
        is_large = source_bytes > MOST_SOURCE
        if has_many or is_large or wheel.requests > last_request:
            return ImportedLibraries()
        for path, data in wheel.read_together(wave).items():
            walk.add_source(path, data)
        walk.advance()
    if walk.unread_modules():
        return ImportedLibraries()
    return walk.result()


def _roots(files: Mapping[str, str], package: str) -> list[str]:
    """Return the module that a package is named after; else all that the wheel has at its top."""
    modules = set()
    for path in files:
        first, _, rest = path.partition("/")
        if rest == "__init__.py":
            modules.add(first)
        elif not rest and (path.endswith(".py") or _LIBRARY.fullmatch(path)):
            modules.add(_module_name(first))
    expected = package.replace("-", "_")
    namesakes = [module for module in modules if module.lower() == expected]
    return namesakes or sorted(modules)


def _module_name(file: str) -> str:
    """Return ``_C`` for ``_C.cpython-311-x86_64-linux-gnu.so``."""
    return file.partition(".")[0]


def _entry_points(wheel: WheelReader) -> list[str]:
    """Return the modules by which a wheel that adds to other packages is found."""
    modules = []
    for path in wheel.members:
        if path.endswith(".dist-info/entry_points.txt"):
            text = wheel.read(path).decode("utf-8", "replace")
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

    path: str
    tree: ast.Module
    functions: dict[str, ast.FunctionDef] = dataclasses.field(default_factory=dict)
    """Those at its top."""
    origins: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    """By the names that come from other modules: the module, and the name there."""

    @classmethod
    def parse(cls, path: str, data: bytes) -> _Source:
        """Return a module; one that is no Python has no statements."""
        try:
            tree = parse_source(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.Module([], [])
        source = cls(path, tree)
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef):
                source.functions[statement.name] = statement
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            module = source.absolute(node.module or "", node.level)
            for alias in node.names:
                own_name = alias.asname or alias.name
                source.origins[own_name] = (module, alias.name)
        return source

    def absolute(self, module: str, level: int) -> str:
        """Return the whole name of a module that this one imports, with so many dots before its name."""
        if not level:
            return module
        folders = self.path.split("/")[:-level]
        if module:
            folders.append(module)
        return ".".join(folders)


class _Walk:
    """The modules that an import reaches, in waves: what one wave names, the next one reads."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        """The files of a wheel as they are installed, with their paths in it."""
        self.sources: dict[str, _Source] = {}
        """The modules that were read, by path."""
        self._modules = _module_files(files)
        self._libraries = [path for path in files if _is_own_library(path)]
        self._waiting: list[_Step] = []
        self._done: set[_Step] = set()
        self._opened = defaultdict[Loading, set[str]](set)

    def result(self) -> ImportedLibraries:
        """Return what was opened so far."""
        required = self._opened_members(Loading.REQUIRED)
        possible = self._opened_members(Loading.UNKNOWN) - required
        optional = self._opened_members(Loading.OPTIONAL) - required - possible
        return ImportedLibraries(
            required=required,
            optional=optional,
            possible=possible,
            is_decided=True,
        )

    def _opened_members(self, loading: Loading) -> frozenset[str]:
        return frozenset(self.files[path] for path in self._opened[loading])

    def unread_modules(self) -> list[str]:
        """Return the paths in the wheel of the modules to read next."""
        paths = {step.path for step in self._waiting}
        unread = paths.difference(self.sources)
        return sorted(self.files[path] for path in unread)

    def add_source(self, member: str, data: bytes) -> None:
        """Add what was read of a module."""
        path = _DATA.sub("", member)
        self.sources[path] = _Source.parse(path, data)

    def advance(self) -> None:
        """Execute every step whose module was read; what needs another module waits."""
        while True:
            ready = [step for step in self._waiting if step.path in self.sources]
            if not ready:
                return
            self._waiting = [step for step in self._waiting if step.path not in self.sources]
            for step in ready:
                if step not in self._done:
                    self._done.add(step)
                    self._execute(step)

    def _execute(self, step: _Step) -> None:
        source = self.sources[step.path]
        scope: _Block = source.tree.body
        if step.function is not None:
            definition = source.functions.get(step.function)
            if definition is None:
                return
            scope = definition.body
        visitor = _Visitor(
            walk=self,
            source=source,
            scope=scope,
            loading=step.loading,
        )
        visitor.visit(scope)

    def import_module(self, name: str, loading: Loading) -> None:
        """Import a module with the packages that it lies in, as far as the wheel has them."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            path = self._modules.get(".".join(parts[:end]))
            if path is None:
                continue
            if path.endswith(".py"):
                step = _Step(path, None, loading)
                self._waiting.append(step)
            else:
                self._opened[loading].add(path)

    def call_function(
        self,
        name: str,
        source: _Source,
        loading: Loading,
    ) -> None:
        """Go on in a function of the same module, or of one that it was imported from."""
        if name in source.functions:
            step = _Step(source.path, name, loading)
            self._waiting.append(step)
            return
        module, function = source.origins.get(name, ("", ""))
        path = self._modules.get(module)
        if path and path.endswith(".py"):
            step = _Step(path, function, loading)
            self._waiting.append(step)

    def open_libraries(
        self,
        texts: Collection[str],
        loading: Loading,
    ) -> None:
        """Note the libraries that a call names; the only one that the wheel has, if it names none."""
        matching = [path for path in self._libraries if _is_named(path, texts)]
        if not matching and len(self._libraries) == 1:
            matching = self._libraries
        self._opened[loading].update(matching)


def _module_files(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files by the names that their modules are imported by.

    Of one name, Python takes a package before a library, and a library before a module.
    """
    packages = {}
    libraries = {}
    modules = {}
    for path in files:
        folder, _, file = path.rpartition("/")
        package = folder.replace("/", ".")
        prefix = f"{package}." if package else ""
        if _LIBRARY.fullmatch(path):
            libraries[prefix + _module_name(file)] = path
        elif package and file == "__init__.py":
            packages[package] = path
        elif file.endswith(".py"):
            modules[prefix + file.removesuffix(".py")] = path
    return modules | libraries | packages


def _is_own_library(path: str) -> bool:
    if _BUNDLED.match(path):
        return False
    return _LIBRARY.fullmatch(path) is not None


def _is_named(path: str, texts: Collection[str]) -> bool:
    """Whether one of the strings of a call is a library's name, the beginning of it, or a pattern for it."""
    file = basename(path)
    for text in texts:
        name = basename(text)
        stem = name.partition(".so")[0]
        if len(stem) < 2:
            continue
        if fnmatch(file, name):
            return True
        if file.startswith((f"{stem}.", f"lib{stem}.")):
            return True
    return False


@dataclass(frozen=True)
class _Visitor:
    """Visits the statements of one scope, in the order in which they are executed."""

    walk: _Walk
    source: _Source
    scope: _Block
    """The body of the module or function that is executed."""
    loading: Loading
    """Whether the package works if what is visited fails."""

    def _inside(self, other: Loading) -> _Visitor:
        """Return a visitor of code that is in a ``try`` or under a condition."""
        loading = weaker(self.loading, other)
        return dataclasses.replace(self, loading=loading)

    def visit(self, block: _Block) -> None:
        """Note what the statements of a block open."""
        for statement in block:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    # It counts where it is called.
                    continue
                case ast.ClassDef() | ast.While():
                    self.visit(statement.body)
                case ast.For():
                    self._visit_calls([statement.iter])
                    self.visit(statement.body)
                case ast.With():
                    self._visit_with(statement)
                case ast.Try():
                    self._visit_try(statement)
                case ast.If():
                    self._visit_if(statement)
                case ast.Import() | ast.ImportFrom():
                    self._visit_import(statement)
                case _:
                    self._visit_calls([statement])

    def _visit_with(self, statement: ast.With) -> None:
        self._visit_calls(statement.items)
        body = self
        if any("suppress" in ast.dump(item) for item in statement.items):
            body = self._inside(Loading.OPTIONAL)
        body.visit(statement.body)

    def _visit_try(self, statement: ast.Try) -> None:
        body = self
        if self._passes_over_failure(statement):
            body = self._inside(Loading.OPTIONAL)
        body.visit(statement.body)
        body.visit(statement.orelse)
        for handler in statement.handlers:
            self._inside(Loading.UNKNOWN).visit(handler.body)
        self.visit(statement.finalbody)

    def _passes_over_failure(self, statement: ast.Try) -> bool:
        """Whether the scope goes on if what is in a ``try`` fails."""
        if not statement.handlers:
            return False
        # Of several places that are tried in turn, the failure of the last is raised behind them.
        others = [other for other in self.scope if other is not statement]
        return not any(map(_raises, [*statement.handlers, *others]))

    def _visit_if(self, statement: ast.If) -> None:
        self._visit_calls([statement.test])
        perhaps = self._inside(Loading.UNKNOWN)
        match _holds(statement.test):
            case True:
                self.visit(statement.body)
                perhaps.visit(statement.orelse)
            case False:
                self.visit(statement.orelse)
            case None:
                perhaps.visit(statement.body)
                perhaps.visit(statement.orelse)

    def _visit_import(self, statement: ast.Import | ast.ImportFrom) -> None:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                self._import(alias.name)
            return
        module = self.source.absolute(statement.module or "", statement.level)
        self._import(module)
        for alias in statement.names:
            self._import(f"{module}.{alias.name}")

    def _visit_calls(self, nodes: Sequence[ast.AST]) -> None:
        """Note what the calls in expressions open."""
        for call in _calls(nodes):
            name = _last_name(call.func)
            if name in _LOADERS:
                self._open_libraries(call)
            elif name in _IMPORTERS:
                self._import_by_name(call)
            else:
                self.walk.call_function(
                    name,
                    self.source,
                    self.loading,
                )

    def _open_libraries(self, call: ast.Call) -> None:
        paths = [text for text in _texts([call]) if "." in text]
        if not paths:
            # The path was put together before: what the scope names counts.
            paths = list(_texts(self.scope))
        self.walk.open_libraries(paths, self.loading)

    def _import_by_name(self, call: ast.Call) -> None:
        for text in _texts([call]):
            name = text.lstrip(".")
            level = len(text) - len(name)
            module = self.source.absolute(name, level)
            self._import(module)

    def _import(self, module: str) -> None:
        self.walk.import_module(module, self.loading)


def _holds(test: ast.expr) -> bool | None:
    """Whether a condition holds if a program on a machine with GPUs imports the module; None if that is not known."""
    names = set(_names(test))
    is_negated = isinstance(test, ast.UnaryOp)
    if names & _NOT_IN_IMPORT:
        return is_negated
    if names & _GPU_TESTS and not is_negated:
        return True
    return None


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


def _last_name(function: ast.expr) -> str:
    """Return the last part of the name of a function that is called; empty if it has none."""
    match function:
        case ast.Attribute():
            return function.attr
        case ast.Name():
            return function.id
        case _:
            return ""


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names in an expression, with those of attributes."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.expr):
            yield _last_name(inner)


def _texts(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the strings in code."""
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield inner.value
