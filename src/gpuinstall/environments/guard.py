"""What keeps plain pip and uv to the builds of an environment: constraints, and the settings that name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def pip_section(constraints: Sequence[str], links: Sequence[str] = ()) -> list[str]:
    """Return the lines of a ``pip.conf`` that name constraints files and pages of files, each by its address.

    They are addresses because pip splits a list of paths at spaces.
    """
    lines = ["[install]", f"constraint = {' '.join(constraints)}"]
    if links:
        lines += ["find-links =", *(f"    {link}" for link in links)]
    return lines
