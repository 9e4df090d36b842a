from __future__ import annotations

from pathlib import Path

import gpuinstall

SOURCE = Path(gpuinstall.__path__[0])


def test_the_options_pass_through_few_files() -> None:
    """Whoever follows them from ``install()`` has these to read."""
    files = [
        path
        for path in SOURCE.rglob("*.py")
        if "InstallOptions" in path.read_text(encoding="utf-8")
    ]
    assert len(files) <= 15
