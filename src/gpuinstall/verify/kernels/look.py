"""Script that reports the torch of an interpreter, without importing it.

The script prints one JSON object. The working folder and PYTHONPATH are removed from
sys.path until all imports are done, so that no module is imported from them.
"""

# ruff: noqa: E402, PTH100  the path is set before other imports
from __future__ import annotations

import os
import sys

if sys.version_info < (3, 8):  # noqa: UP036  the runner prints it
    text = "it is Python %d.%d, but the checks require 3.8 or newer"
    sys.exit(text % sys.version_info[:2])


def _absolute(entry: str) -> str:
    try:
        return os.path.abspath(entry)
    except OSError:  # the working folder no longer exists
        return entry


PATH = list(sys.path)
# The working folder and PYTHONPATH.
_PYTHONPATH = os.environ.get("PYTHONPATH", "").split(os.pathsep)
ADDED = [_absolute(entry) for entry in ("", *filter(None, _PYTHONPATH))]
sys.path[:] = [entry for entry in PATH if _absolute(entry) not in ADDED]

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

_CONSTANT = re.compile(r"^(\w+)\b[^=\n]*= *['\"](.+)['\"]", re.MULTILINE)
# The prefixes of backend tags, by torch's name for the toolkit.
PREFIXES = {"cuda": "cu", "hip": "rocm", "xpu": "xpu"}


def main() -> None:
    """Print the path and version of the torch that an import would find."""
    sys.path[:] = PATH
    origin = _origin()
    answer: dict[str, Any] = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": origin,
        "venv": sys.prefix != sys.base_prefix,
        "path": PATH,
    }
    if origin:
        answer.update(_version(Path(origin).with_name("version.py")))
    print(f"gpuinstall: {json.dumps(answer)}")  # noqa: T201  the report


def _origin() -> str | None:
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return None
    if spec.origin:
        return spec.origin
    # The module is a folder without __init__.py.
    return next(iter(spec.submodule_search_locations or []), None)


def _version(path: Path) -> dict[str, Any]:
    """Read the version and toolkit of torch from ``version.py``.

    The file is parsed instead of run, because it may be in the working folder.
    """
    if path.parent.name != "torch" or not os.path.isfile(path):
        return {}
    try:
        values = dict(_CONSTANT.findall(path.read_text("utf-8")))
    except (OSError, ValueError):
        # A later import of torch reports a damaged file.
        return {}
    toolkit = None
    for name, prefix in PREFIXES.items():
        if name in values:
            version = "".join(re.findall(r"^[0-9]+\.[0-9]+", values[name]))
            toolkit = prefix + (version.replace(".", "") if name == "cuda" else version)
            break
    return {"version": values.get("__version__"), "toolkit": toolkit}


main()
