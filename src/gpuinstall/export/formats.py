"""The formats that a lock is written in, each a module of its own and a row here; the command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall.export.conda import conda
from gpuinstall.export.pixi import pixi
from gpuinstall.export.requirements import constraints, requirements

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gpuinstall.lock.lock import Lock


@dataclass(frozen=True)
class ExportFormat:
    """A format: its name on the command line, what is said of it there, and how it is written.

    ``write`` takes the lock and the names of the PyTorch family, and raises UsageError where the lock does not say
    enough.
    """

    name: str
    help: str
    write: Callable[[Lock, Collection[str]], str]


FORMATS = (
    ExportFormat("constraints", "Write the versions alone, for pip -c, uv and Poetry.", constraints),
    ExportFormat("requirements", "Write a requirements file with hashes, for pip and uv.", requirements),
    ExportFormat("conda", "Write conda's environment.yml, its pip section with hashes.", conda),
    ExportFormat("pixi", "Write pixi's pixi.toml, the versions as locked.", pixi),
)
