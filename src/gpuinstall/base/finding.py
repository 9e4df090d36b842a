"""Classes for reasons, rejections, check results, and findings.

The exceptions in ``errors.py`` have the fields of a finding.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NamedTuple, TypeVar

from gpuinstall.base.advice import Hint, read_hint
from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.values import Value, asdict

CheckStatus = Literal["passed", "failed", "skipped"]
Where = Literal["machine", "environment", "project"]
Rejectable = TypeVar("Rejectable")


class Reason(NamedTuple):
    """Reason or warning, with a slug for programs and a text for people."""

    code: str
    message: str
    why: str | None = None
    fixes: tuple[Hint, ...] = ()

    def to_dict(self) -> dict[str, str]:
        """Return the entry of a document, without cause and fixes."""
        return {"code": self.code, "message": self.message}


class Rejection(Value, Generic[Rejectable]):
    """Rejected candidate, such as a build or a wheel, with the reason."""

    candidate: Rejectable
    reason: Reason


class CheckResult(Value):
    """Result of a check on a device."""

    name: str
    status: CheckStatus
    seconds: float = 0.0
    message: str | None = None
    id: str | None = None
    """The failure catalog entry of a failed check, if its cause is known."""
    fixes: tuple[Hint, ...] = ()
    """The possible fixes, the most likely fix first."""
    evidence: str = ""
    """The complete error output of the check."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a Verdict document."""
        numbers = {"name": self.name, "status": self.status, "seconds": self.seconds}
        return numbers | {"message": self.message, "cause": self.id}


class _Problem(Value):
    """Problem entry of a Machine document."""

    code: str = "unknown-problem"
    id: str | None = None
    message: str = "an unnamed problem"
    fix: str | None = None
    blocking: bool = True
    gpus: tuple[int, ...] = ()
    why: str | None = None
    seen: str | None = None


class Finding(Value):
    """Problem with its cause and fixes."""

    code: str
    """A slug that is stable between releases."""

    message: str
    """The problem in one line."""

    id: str | None = None
    """The failure catalog entry for the problem."""

    why: str | None = None
    evidence: str | None = None
    """The facts that show the problem."""

    fixes: tuple[Hint, ...] = ()
    where: Where = "machine"
    gpus: tuple[int, ...] = ()
    """The indices of the affected GPUs. Empty: all of ``where``."""

    blocking: bool = True
    """Whether the problem prevents torch from working, unlike a note."""

    @property
    def reason(self) -> Reason:
        """The problem without its fixes."""
        return Reason(self.code, self.message, self.why, self.fixes)

    @property
    def fix(self) -> str | None:
        """The fixes as text, with one command per line, or None."""
        return "\n".join(map(str, self.fixes)) or None

    @classmethod
    def from_document(cls, body: object, place: str) -> Finding:
        """Read a problem of a Machine document; raise MalformedError."""
        fields = asdict(read_object(_Problem, body, place))
        fix = fields.pop("fix")
        evidence = fields.pop("seen")
        return cls(
            **fields,
            evidence=evidence,
            fixes=tuple(map(read_hint, fix.split("\n"))) if fix else (),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a Machine document."""
        problem = _Problem(
            code=self.code,
            message=self.message,
            id=self.id,
            fix=self.fix,
            blocking=self.blocking,
            gpus=self.gpus,
            why=self.why,
            seen=self.evidence,
        )
        return write_object(problem, optional=("gpus", "why", "seen"))
