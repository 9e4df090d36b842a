"""Says which torch this interpreter would import, without importing it. One JSON object on stdout, a script by itself.

With the argument ``damage`` it also names the files of torch's own list (RECORD) that are not there.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import runpy
import sys
from importlib import metadata
from pathlib import Path
from typing import Any


def main() -> None:
    """Print what is found."""
    origin = _origin()
    found: dict[str, Any] = {"python": platform.python_version(), "prefix": sys.prefix, "torch": origin}
    found.update(venv=sys.prefix != sys.base_prefix, narrow=sys.maxsize <= 1 << 32)
    if origin:
        found.update(_version(Path(origin).with_name("version.py")))
    if sys.argv[1:] == ["damage"]:
        found["missing"] = _missing()
    print(json.dumps(found))  # noqa: T201  the answer


def _origin() -> str | None:
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or []), None)


def _version(path: Path) -> dict[str, Any]:
    if path.parent.name != "torch" or not path.is_file():
        return {}
    try:
        values = runpy.run_path(str(path))
    except Exception:  # noqa: BLE001  a damaged file is for the import to report
        return {}
    return {"version": values.get("__version__"), "cuda": values.get("cuda"), "hip": values.get("hip")}


def _missing() -> list[str]:
    try:
        files = metadata.files("torch") or []
    except metadata.PackageNotFoundError:
        return []
    return [str(file) for file in files if file.suffix != ".pyc" and not Path(str(file.locate())).exists()]


main()
