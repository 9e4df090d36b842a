"""A lock as conda's ``environment.yml``: Python and pip by conda, everything locked by pip, with hashes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gpuinstall.export.pins import name_for_others, pins

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuinstall.lock.lock import Lock


def conda(lock: Lock, family: Collection[str]) -> str:
    """Write ``environment.yml``; raise UsageError where a package has no address that others can use."""
    python = f"python={lock.python}" if lock.python else f"python{lock.pylock.requires_python or ''}"
    lines = [
        f"# From {lock.name}: conda env create -f environment.yml",
        f"name: {name_for_others(lock)}",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
        "dependencies:",
        f"  - {python}",
        "  - pip",
        "  - pip:",
        *(f"      - {json.dumps(' '.join(pin.words))}" for pin in pins(lock, family)),
    ]
    return "\n".join(lines) + "\n"
