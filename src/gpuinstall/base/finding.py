"""What speaks against something, as values: a reason, a rejection with its reason, a finding with its fixes.

An error, which has a finding's fields, is raised at the border of a room: ``errors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.values import Value, asdict

if TYPE_CHECKING:
    from gpuinstall.base.advice import Advice

CheckStatus = Literal["passed", "failed", "skipped"]
Where = Literal["machine", "environment", "project"]
Rejectable = TypeVar("Rejectable")


class Reason(NamedTuple):
    """Why something is so: a slug for programs and a sentence for people; also a warning."""

    code: str
    message: str


class Rejection(Value, Generic[Rejectable]):
    """A candidate that was passed over, and why: a build, a wheel, a library, a file, a lock."""

    candidate: Rejectable
    reason: Reason


class CheckResult(Value):
    """How one check on one device ended, after how many ``seconds``.

    Where it failed, ``id`` is its cause in the failure catalogue if that is recognised, ``fixes`` what repairs it, the
    surest first, and ``evidence`` all that was said about it.
    """

    name: str
    status: CheckStatus
    seconds: float = 0.0
    message: str | None = None
    id: str | None = None
    fixes: tuple[Advice | str, ...] = ()
    evidence: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Write it as the Verdict document holds it."""
        numbers = {"name": self.name, "status": self.status, "seconds": self.seconds}
        return numbers | {"message": self.message, "cause": self.id}


class _Problem(Value):
    """A finding as a Machine document has it."""

    code: str = "unknown-problem"
    id: str | None = None
    message: str = "an unnamed problem"
    fix: str | None = None
    blocking: bool = True
    gpus: tuple[int, ...] = ()
    why: str | None = None
    seen: str | None = None


class Finding(Value):
    """Something that is wrong, and what to do about it."""

    code: str
    """A slug that stays the same between releases."""

    message: str
    """What is wrong, in one line."""

    id: str | None = None
    """Its entry in the failure catalogue."""

    why: str | None = None
    evidence: str | None = None
    """The facts that show it."""

    fixes: tuple[Advice | str, ...] = ()
    where: Where = "machine"
    gpus: tuple[int, ...] = ()
    """The indices of the GPUs that it concerns; empty: all of ``where``."""

    blocking: bool = True
    """Whether torch cannot work with it; what does not block is worth knowing."""

    @property
    def reason(self) -> Reason:
        """What is wrong, without what to do."""
        return Reason(self.code, self.message)

    @property
    def fix(self) -> str | None:
        """The fixes as text, one command per line; None if there is none."""
        return "\n".join(map(str, self.fixes)) or None

    @classmethod
    def from_document(cls, body: object, place: str) -> Finding:
        """Read a problem of a Machine document; raise MalformedError."""
        fields = asdict(read_object(_Problem, body, place))
        fix = fields.pop("fix")
        evidence = fields.pop("seen")
        return cls(
            **fields, evidence=evidence, fixes=tuple(fix.split("\n")) if fix else ()
        )

    def to_dict(self) -> dict[str, Any]:
        """Write it as a Machine document holds its problems, without what it does not say."""
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
