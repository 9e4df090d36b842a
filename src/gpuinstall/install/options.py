"""What an installation is told, and what it comes to, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.environments.paths import EnvironmentPaths, interpreter
from gpuinstall.install.environment_lock import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.install.previous import Previous
    from gpuinstall.lock.fit import Fit, Misfit
    from gpuinstall.lock.lock import VersionChange
    from gpuinstall.machine import Machine

LockChange = Literal["written", "unchanged"]
Change = Literal["built", "proven", "none"]


ATTEMPTS = 3
"""How many builds are tried where kernels fail: each may cost 3 GB."""


@dataclass(frozen=True)
class InstallOptions:
    """How to install what a project asks for.

    ``locked`` says that no new lock is made, and any that fits will do; ``target`` which one is meant. ``replace`` lets
    packages and folders be replaced that are not ours, ``restoring`` packages beside a torch that others changed.
    ``upgrade`` lets every version move, ``moving`` those of single packages. ``verify`` proves again what is proven,
    ``keep`` keeps what is replaced, ``jupyter`` makes a Jupyter kernel of it. ``attempts`` are builds to try where
    kernels fail; ``wait`` is in seconds.
    """

    locked: bool = False
    target: str | None = None
    replace: bool = False
    restoring: bool = False
    upgrade: bool = False
    moving: tuple[str, ...] = ()
    verify: bool = False
    keep: bool = True
    jupyter: bool = False
    attempts: int = ATTEMPTS
    wait: float = WAIT_S


@dataclass(frozen=True)
class InstallResult:
    """What came of it. ``change`` says whether the environment was built, proven again, or left alone.

    ``fit`` is the lock that it is made of, with its plan; ``misfits`` are the others in the folder, and why they were
    not taken. ``changes`` are the packages that came, went and moved. ``bytes`` were to be fetched into ``caches``.
    """

    paths: EnvironmentPaths
    machine: Machine
    fit: Fit
    lock_change: LockChange
    verdict: dict[str, Any]
    change: Change
    misfits: tuple[Misfit, ...] = ()
    changes: tuple[VersionChange, ...] = ()
    bytes: int = 0
    caches: tuple[Path, ...] = ()
    previous: Previous | None = None
    seconds: float = 0.0

    @property
    def venv(self) -> Path:
        """The folder of the environment."""
        return self.paths.venv

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return interpreter(self.paths.venv)

    def to_dict(self) -> dict[str, Any]:
        """Write the document of ``install --json``."""
        lock, choice = self.fit.lock, self.fit.choice
        return {
            "plan": self.fit.plan.to_dict(),
            "lock": {
                "path": str(self.paths.folder / lock.name),
                "sha256": lock.sha256,
                "status": self.lock_change,
                "packages": len(lock.pylock.packages),
                "changes": [change.to_dict() for change in self.changes],
            },
            "environment": {
                "path": str(self.paths.venv),
                "python": choice.python,
                "torch": lock.versions["torch"],
                "backend": choice.build.backend.tag,
                "status": self.change,
            },
            "previous": self.previous and {"path": str(self.previous.path), "bytes": self.previous.bytes},
            "verdict": self.verdict,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }
