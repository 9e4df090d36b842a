"""Generate the names of wheels for conda packages from conda-pypi.

``python -m tools.conda_names`` downloads the latest wheel with pip and writes
``src/gpuinstall/catalog/data/conda_mapping.txt``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from datetime import datetime, timezone
from pathlib import Path

from packaging.utils import InvalidName, canonicalize_name, parse_wheel_filename

from gpuinstall.catalog.data_files import TABLES

MAPPING = "conda_pypi/grayskull_pypi_mapping.json"
#: A hash instead of a name is an error in the mapping.
_HASH = r"[0-9a-f]{40,}"


def main() -> None:
    """Write the table of conda packages."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        subprocess.run([*command, "-d", folder, "conda-pypi"], check=True)
        [wheel] = Path(folder).glob("*.whl")
        text = build_table(wheel)
    (TABLES / "conda_mapping.txt").write_text(text, encoding="utf-8")


def build_table(wheel: Path) -> str:
    """Return a line per conda package, with the wheel's name if it differs."""
    with zipfile.ZipFile(wheel) as archive:
        rows = json.loads(archive.read(MAPPING)).values()
        info = archive.getinfo(MAPPING)
    names: dict[str, set[str]] = {}
    for row in rows:
        try:
            name = canonicalize_name(row["pypi_name"], validate=True)
        except InvalidName:
            continue
        if not re.fullmatch(_HASH, name):
            names.setdefault(row["conda_name"], set()).add(name)
    lines = []
    for conda, wheels in sorted(names.items()):
        # If a conda package has two wheels, conda_names.toml selects one.
        if len(wheels) == 1:
            [wheel_name] = wheels
            lines.append(conda if conda == wheel_name else f"{conda} {wheel_name}")
    _, version, _, _ = parse_wheel_filename(wheel.name)
    today = datetime.now(timezone.utc).date()
    return "\n".join(
        (
            "# Conda packages with a wheel, and the wheel's name if it differs.",
            f"# From {info.filename} of conda-pypi {version} (MIT), read on {today}, by `python -m tools.conda_names`.",
            *lines,
            "",
        )
    )


if __name__ == "__main__":
    main()
