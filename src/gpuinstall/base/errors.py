"""Error classes, one for each exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpuinstall.base.finding import Finding
from gpuinstall.base.text import redact

if TYPE_CHECKING:
    from gpuinstall.base.advice import Hint


class GpuInstallError(Exception):
    """Error with an explanation and a hint.

    ``code`` is a slug that is stable between releases, ``message`` is one line, ``why``
    is the cause, ``evidence`` has the facts, ``fixes`` are the commands and sentences of
    a fix, ``hint`` is their text, ``id`` is a failure catalog entry, and ``data`` is the
    available JSON ``data``.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: Hint | tuple[Hint, ...] | None = None,
        why: str | None = None,
        evidence: str | None = None,
        id: str | None = None,  # noqa: A002  the key of the failure catalog
        data: dict[str, Any] | None = None,
    ) -> None:
        message = redact(message)
        super().__init__(message)
        self.code = code
        self.message = message
        hints = hint if isinstance(hint, tuple) else (hint,)
        self.fixes: tuple[Hint, ...] = tuple(
            redact(one) if isinstance(one, str) else one for one in hints if one
        )
        self.why = why and redact(why)
        self.evidence = evidence and redact(evidence)
        self.id = id
        self.data = data

    @property
    def hint(self) -> str | None:
        """The fixes as text, one in each line, or None."""
        return self.finding.fix

    @property
    def sentence(self) -> str:
        """The message and its cause on one line."""
        return f"{self.message}: {self.why}" if self.why else self.message

    @property
    def finding(self) -> Finding:
        """The error as a finding, which is not an exception."""
        return Finding(
            self.code, self.message, self.id, self.why, self.evidence, self.fixes
        )


class InternalError(GpuInstallError):
    """An unexpected error, which is a bug in gpuinstall."""


class UsageError(GpuInstallError):
    """A malformed option, file, or machine, or a refused overwrite."""

    exit_code = 2


class NoBuildError(GpuInstallError):
    """No build satisfies the request, but a build satisfies a similar one."""

    exit_code = 3


class InstallationError(GpuInstallError):
    """A failed download, build, or write, or a hash mismatch."""

    exit_code = 4
    host = ""
    """The host that did not respond, if any."""


class UnreachableError(InstallationError):
    """A host that does not respond."""

    def __init__(self, host: str, why: str, hint: Hint | tuple[Hint, ...]) -> None:
        super().__init__("unreachable", f"{host} cannot be reached", why=why, hint=hint)
        self.host = host


class VerificationError(GpuInstallError):
    """A GPU kernel failed in an installed environment."""

    exit_code = 5


class LockError(GpuInstallError):
    """A missing, malformed, edited, stale, or incompatible lock file."""

    exit_code = 6


class SomeNodesError(GpuInstallError):
    """Some cluster nodes failed or have no record."""

    exit_code = 7


class MachineError(GpuInstallError):
    """A GPU cannot be used until the machine is repaired or updated."""

    exit_code = 8


class InterruptedByUserError(GpuInstallError):
    """An interruption by Ctrl-C or a termination signal."""

    exit_code = 130
