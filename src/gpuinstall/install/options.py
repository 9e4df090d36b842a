"""What an installation is told, and what it comes to, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.environments.paths import interpreter
from gpuinstall.install.environment_lock import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.install.previous import Previous
    from gpuinstall.lock.compare import VersionChange
    from gpuinstall.lock.fit import Fit, Misfit
    from gpuinstall.lock.folder_request import FolderRequest
    from gpuinstall.machine import Machine
    from gpuinstall.request import Request

LockChange = Literal["written", "unchanged"]
Change = Literal["built", "proven", "none"]


@dataclass(frozen=True)
class InstallOptions:
    """What to install where.

    ``machine`` is planned for; ``here`` is this machine, where the kernels run, None when another one is meant.
    ``asked`` is the folder's request, which only a lock made for it serves; None where any lock that fits will do.
    ``locked`` says that no new lock is made, ``target`` which one is meant; ``wheels`` is a folder to install from.
    ``upgrade`` lets every version move, ``moving`` those of single packages. ``jupyter`` makes a Jupyter kernel of it.
    ``wait`` is in seconds.
    """

    paths: EnvironmentPaths
    machine: Machine
    here: Machine | None
    request: Request
    asked: FolderRequest | None = None
    locked: bool = False
    target: str | None = None
    wheels: Path | None = None
    replace: bool = False
    upgrade: bool = False
    moving: tuple[str, ...] = ()
    verify: bool = False
    keep: bool = True
    fallback: bool = True
    jupyter: bool = False
    wait: float = WAIT_S


@dataclass(frozen=True)
class InstallResult:
    """What came of it. ``change`` says whether the environment was built, proven again, or left alone.

    ``found`` is the lock that it is made of, with its plan; ``misfits`` are the others in the folder, and why they were
    not taken. ``changes`` are the packages that came, went and moved. ``bytes`` were to be fetched into ``caches``.
    """

    paths: EnvironmentPaths
    machine: Machine
    found: Fit
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
        lock, choice = self.found.lock, self.found.choice
        return {
            "plan": self.found.plan.to_dict(),
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
