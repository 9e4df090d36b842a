"""Where packages may come from, and how: one value, carried unchanged from the command line to the search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.base.values import dataclass

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Sourcing:
    """The choices of whoever starts a run about its packages; pip's and uv's own settings count beside them."""

    torch_index: str | None = None
    """The base of PyTorch's index; None is the configured one, or the official one."""

    extension_sources: tuple[str, ...] = ()
    """Further pages of prebuilt extensions."""

    wheels: Path | None = None
    """A folder whose files come before those of every other source."""

    offline: bool = False
    """Whether only caches and folders are read."""

    only_binary: bool = False
    """Whether no package's own code runs while it is built."""


DEFAULT_SOURCING = Sourcing()
