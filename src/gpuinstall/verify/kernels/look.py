"""Script that reports the torch of an interpreter, without importing it.

The script prints one JSON object.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 8):  # noqa: UP036  the runner prints it
    text = "it is Python %d.%d, but the checks require 3.8 or newer"
    sys.exit(text % sys.version_info[:2])
if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # this script's folder

import json
import re
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from os.path import isfile
from pathlib import Path
from typing import Any

_CONSTANT = re.compile(r"^(\w+)\b[^=\n]*= *['\"](.+)['\"]", re.MULTILINE)


def main() -> None:
    """Print the path and version of the torch that an import would find."""
    spec = find_spec("torch")
    answer: dict[str, Any] = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "torch": _origin(spec),
        "venv": sys.prefix != sys.base_prefix,
        "path": sys.path,
    }
    if answer["torch"]:
        path = Path(answer["torch"]).with_name("version.py")
        answer["constants"] = _read_constants(path)
    print(json.dumps(answer))  # noqa: T201  the report


def _origin(spec: ModuleSpec | None) -> str | None:
    if spec is None:
        return None
    if spec.origin:
        return spec.origin
    # The module is a folder without __init__.py.
    return next(iter(spec.submodule_search_locations or []), None)


def _read_constants(path: Path) -> dict[str, str]:
    """Return the strings in torch's ``version.py`` by their names.

    The file is parsed, because an import of torch may fail.
    """
    if path.parent.name != "torch" or not isfile(path):
        return {}
    try:
        return dict(_CONSTANT.findall(path.read_text("utf-8")))
    except (OSError, ValueError):
        # A later import of torch reports a damaged file.
        return {}


main()
