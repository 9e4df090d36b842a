"""A lock as a requirements file, every file by its hash, the family by its addresses; and as versions alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.export.pins import pins

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuinstall.lock.lock import Lock


def requirements(lock: Lock, family: Collection[str]) -> str:
    """Write a lock as a requirements file; raise UsageError where a package has no address that others can use."""
    head = f"# From {lock.name}, for Python {lock.python or lock.pylock.requires_python or 'of any version'}.\n"
    return head + "".join(" \\\n    ".join(pin.words) + "\n" for pin in pins(lock, family))


def constraints(lock: Lock, _family: Collection[str]) -> str:
    """Write the version of each package, the build of torch included: what ``-c`` takes, and what installs nothing."""
    head = f"# From {lock.name}: pip install -c constraints.txt, uv pip install -c constraints.txt\n"
    return head + "".join(f"{name}=={version}\n" for name, version in sorted(lock.versions.items()))
