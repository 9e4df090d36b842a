"""What an installation is told, and what it comes to, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.environments.paths import interpreter
from gpuinstall.install.environment_lock import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.install.previous import Previous
    from gpuinstall.lock.fit import Fit, Misfit
    from gpuinstall.machine import Machine
    from gpuinstall.request import Request

LockChange = Literal["written", "unchanged"]
Change = Literal["built", "proven", "none"]


@dataclass(frozen=True)
class InstallOptions:
    """What to install where.

    ``machine`` is planned for; ``here`` is this machine, where the kernels run, None when another one is meant.
    ``exact`` says that the requirements were named, so that only a lock made from them will do; ``files`` are the
    digests of the files that they were read from. ``locked`` says that no new lock is made, ``target`` which one is
    meant; ``wheels`` is a folder to install from. ``wait`` is in seconds.
    """

    paths: EnvironmentPaths
    machine: Machine
    here: Machine | None
    request: Request
    exact: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    locked: bool = False
    target: str | None = None
    wheels: Path | None = None
    replace: bool = False
    upgrade: bool = False
    verify: bool = False
    keep: bool = True
    fallback: bool = True
    wait: float = WAIT_S


@dataclass(frozen=True)
class InstallResult:
    """What came of it. ``change`` says whether the environment was built, proven again, or left alone.

    ``found`` is the lock that it is made of, with its plan; ``misfits`` are the others in the folder, and why they were
    not taken. ``bytes`` were to be fetched into ``caches``.
    """

    paths: EnvironmentPaths
    machine: Machine
    found: Fit
    lock_change: LockChange
    verdict: dict[str, Any]
    change: Change
    misfits: tuple[Misfit, ...] = ()
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
