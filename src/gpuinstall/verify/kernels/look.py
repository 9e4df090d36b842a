"""Says which torch this interpreter would import, without importing it. One JSON object on stdout, a script by itself.

With the argument ``plain`` it also names the modules of the working folder and of PYTHONPATH that stand before others
of the same name. None of those is imported here: until all imports are made, these folders are off the path.
"""

# ruff: noqa: E402, PTH100  before anything else is imported, the path is set
from __future__ import annotations

import os
import sys

if sys.version_info < (3, 8):  # noqa: UP036  the runner names the version
    sys.exit(1)


def _absolute(entry: str) -> str:
    try:
        return os.path.abspath(entry)
    except OSError:  # the working folder no longer exists
        return entry


PATH = list(sys.path)
ADDED = [
    _absolute(entry)
    for entry in ("", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
]
sys.path[:] = [entry for entry in PATH if _absolute(entry) not in ADDED]

import ast
import importlib.util
import json
import re
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Iterator  # noqa: UP035  Python 3.8

# The kinds of build, by what torch calls the toolkit that each is made with.
KINDS = {"cuda": "cuda", "hip": "rocm", "xpu": "xpu"}


def main() -> None:
    """Print what is found."""
    shadowing = list(map(str, _shadowing())) if sys.argv[1:] == ["plain"] else []
    sys.path[:] = PATH
    origin = _origin()
    answer: dict[str, Any] = {"python": ".".join(map(str, sys.version_info[:3])), "torch": origin}
    answer.update(
        venv=sys.prefix != sys.base_prefix,
        is_32_bit=sys.maxsize <= 1 << 32,
        shadowing=shadowing,
        path=PATH,
    )
    if origin:
        answer.update(_version(Path(origin).with_name("version.py")))
    print(json.dumps(answer))  # noqa: T201  the answer


def _origin() -> str | None:
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or []), None)


def _shadowing() -> list[Path]:
    modules = [path for folder in ADDED for path in _modules(Path(folder))]
    return [path for path in modules if _stands_before(path.name.partition(".")[0])]


def _modules(folder: Path) -> list[Path]:
    try:
        return [
            path
            for path in folder.iterdir()
            if path.suffix in (".py", ".so") or (path / "__init__.py").is_file()
        ]
    except OSError:
        return []


def _stands_before(name: str) -> bool:
    """Say whether there is another of this name, or torch looks for it whether it is installed or not."""
    return name == "numpy" or PathFinder.find_spec(name, sys.path) is not None


def _version(path: Path) -> dict[str, Any]:
    if path.parent.name != "torch" or not path.is_file():
        return {}
    try:
        values = dict(_constants(ast.parse(path.read_bytes())))
    except (
        OSError,
        SyntaxError,
        ValueError,
        RecursionError,
    ):  # a damaged file is for the import to report
        return {}
    named = ((kind, str(values[name])) for name, kind in KINDS.items() if values.get(name))
    matches = ((kind, re.match(r"[0-9]+\.[0-9]+", version)) for kind, version in named)
    toolkits = ([kind, match[0]] if match else [kind] for kind, match in matches)
    return {"version": values.get("__version__"), "toolkit": next(toolkits, None)}


def _constants(module: ast.Module) -> Iterator[tuple[str, Any]]:
    """The names that a module sets to plain values; it is read and not run, as it may lie in the working folder."""
    for line in module.body:
        targets = getattr(line, "targets", [getattr(line, "target", None)])
        value = getattr(line, "value", None)
        if isinstance(value, ast.Constant):
            yield from (
                (target.id, value.value) for target in targets if isinstance(target, ast.Name)
            )


main()
