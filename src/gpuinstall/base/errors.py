"""One class per way to fail: a code for programs, an exit status for shells, and what to do for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpuinstall.base.finding import Finding
from gpuinstall.base.text import redacted

if TYPE_CHECKING:
    from gpuinstall.base.advice import Advice


class GpuInstallError(Exception):
    """What happened, in one line; why; and what to do, as commands where possible.

    ``code`` is a slug that stays the same between releases, ``id`` an entry of the failure catalogue,
    ``why`` and ``evidence`` the explanation and the facts behind it, ``hint`` what to do, ``data`` whatever
    part of the command's document could still be made.
    """

    exit_code: ClassVar[int] = 1
    untrusted = False
    """Whether a server's certificate is the cause: the system's authorities may know its issuer."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | Advice | None = None,
        why: str | None = None,
        evidence: str | None = None,
        id: str | None = None,  # noqa: A002  the key of the failure catalogue
        data: dict[str, Any] | None = None,
    ) -> None:
        message = redacted(message)
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = None if hint is None else redacted(str(hint))
        self.why = why and redacted(why)
        self.evidence = evidence and redacted(evidence)
        self.id = id
        self.data = data

    @property
    def finding(self) -> Finding:
        """The same as a value."""
        fixes = tuple((self.hint or "").splitlines())
        return Finding(self.code, self.message, self.id, self.why, self.evidence, fixes)


class InternalError(GpuInstallError):
    """A fault of ours."""


class UsageError(GpuInstallError):
    """A malformed option, file or machine; a refused overwrite; other people's packages in the way."""

    exit_code = 2


class NoBuildError(GpuInstallError):
    """No build fits, and another request would."""

    exit_code = 3


class InstallationError(GpuInstallError):
    """Network, space, permission, a package that no source has, a hash that differs while downloading."""

    exit_code = 4


class VerificationError(GpuInstallError):
    """The environment was installed, and a kernel failed in it."""

    exit_code = 5


class LockError(GpuInstallError):
    """A lock that is missing, unreadable, of unknown version, edited, stale, or does not fit."""

    exit_code = 6


class SomeNodesError(GpuInstallError):
    """Some nodes have failed, or have no record."""

    exit_code = 7


class MachineError(GpuInstallError):
    """A GPU is present but cannot be used; only repairing or updating the machine helps."""

    exit_code = 8


class InterruptedByUserError(GpuInstallError):
    """Ctrl-C."""

    exit_code = 130
