"""What the caller of a run says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.base.request import FOLDERS_OWN, Request
from gpuinstall.base.values import Value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.sources.requirements_file import RequirementsFile


class Settings(Value):
    """What the caller of a run says, by the options of a command or the arguments of a call."""

    request: Request = FOLDERS_OWN
    """What is added to what the folder asks for."""

    files: Mapping[str, RequirementsFile] = {}
    """Requirements files by their names, which are added too."""

    only: bool = False
    """Whether ``request`` and ``files`` are the whole request: what the folder's files and locks ask for does not count."""

    anew: bool = False
    """Whether the backend that the environment was made for does not count either."""

    without: tuple[str, ...] = ()
    """Packages to take out."""

    machine: Machine | None = None
    """Another one than this."""

    venv: Path | None = None
    """The environment; None: ``.venv`` in the folder."""

    script: RequirementsFile | None = None
    """What the block of a script asks for, in place of the user's own words."""

    cuda_compat: bool = False
    """Whether forward-compatibility libraries are put above the driver."""

    only_looks: bool = False
    """Whether no environment is changed or started."""

    typed_in: Path | None = None
    """The folder in which the command was typed; None: the working folder."""
