"""What the user asks for: one value, whatever mouth it came from (command line, pyproject, environment)."""

from __future__ import annotations

from dataclasses import dataclass

from gpuinstall.backend import CPU
from gpuinstall.sourcing import DEFAULT_SOURCING, Sourcing


@dataclass(frozen=True)
class Request:
    """A request for an environment.

    ``requirements`` are ordinary requirements, addresses and ``-e folder`` among them; ``constraints`` say which
    versions may be taken of what turns up, and ask for nothing. ``python`` fixes the interpreter's ``X.Y``;
    ``backend`` forces a tag such as ``cu126`` or ``cpu``; ``gpus`` are indices or UUIDs to plan for (None: all of
    them). ``allowed_backends`` is a team's list (None: all). ``preferred_pythons`` are the ``X.Y`` to try in this order
    before the newest that the machine has; ``managed_pythons`` says that others can be fetched. ``preferred`` are
    versions, ``name==version``, that stay where nothing stands against them: those of the project's own lock.
    ``preferred_backend`` is a tag that is taken if a build of the chosen torch has it and runs.
    ``sources`` is what files say of where packages come from and which files they are. ``build_files_digest`` is of the
    files that say what the folders among the requirements require, if only a build backend can read them.
    ``sourcing`` says how packages are had.
    """

    requirements: tuple[str, ...] = ("torch",)
    python: str | None = None
    backend: str | None = None
    gpus: tuple[str | int, ...] | None = None
    allowed_backends: tuple[str, ...] | None = None
    preferred_pythons: tuple[str, ...] = ()
    managed_pythons: bool = True
    constraints: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    preferred_backend: str | None = None
    sources: tuple[str, ...] = ()
    build_files_digest: str = ""
    sourcing: Sourcing = DEFAULT_SOURCING

    @property
    def is_for_cpu(self) -> bool:
        """Whether the CPU's build is asked for by name."""
        return self.backend == CPU.tag

    @property
    def is_for_gpus(self) -> bool:
        """Whether a build for GPUs is asked for by name."""
        return self.backend is not None and not self.is_for_cpu


FOLDERS_OWN = Request(())
"""A request that names no requirements: those of the folder are meant."""
