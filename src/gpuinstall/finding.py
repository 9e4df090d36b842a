"""What is wrong and what to do about it, as values: for machines, environments, projects and errors alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from gpuinstall.advice import Advice
    from gpuinstall.fields import Fields

CheckStatus = Literal["passed", "failed", "skipped"]
Where = Literal["machine", "environment", "project"]


@dataclass(frozen=True)
class CheckResult:
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


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: a code that stays the same between releases, what it is in one line, and what to do.

    ``id`` is its entry in the failure catalogue, ``evidence`` the facts that show it, ``gpus`` the indices that it
    concerns (empty: all of ``where``), ``needs`` what the fixes take besides commands, such as ``reboot``.
    Torch cannot work with what is ``blocking``; what is not is worth knowing.
    """

    code: str
    message: str
    id: str | None = None
    why: str | None = None
    evidence: str | None = None
    fixes: tuple[Advice | str, ...] = ()
    where: Where = "machine"
    gpus: tuple[int, ...] = ()
    blocking: bool = True
    needs: tuple[str, ...] = ()

    @property
    def fix(self) -> str | None:
        """What to do as text, one command a line; None where there is nothing, or its programs are not here."""
        return "\n".join(str(fix) for fix in self.fixes if isinstance(fix, str) or fix.is_possible) or None

    @classmethod
    def read(cls, fields: Fields) -> Finding:
        """Read a problem of a Machine document; raise MalformedError."""
        fix = fields.text("fix")
        return cls(
            code=fields.text("code") or "unknown-problem",
            message=fields.text("message") or "an unnamed problem",
            id=fields.text("id"),
            why=fields.text("why"),
            evidence=fields.text("seen"),
            fixes=tuple(fix.split("\n")) if fix else (),
            gpus=fields.numbers("gpus"),
            blocking=fields.flag("blocking") is not False,
            needs=fields.texts("needs"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Write it as a Machine document holds its problems, without what it does not say."""
        optional = {"gpus": list(self.gpus), "why": self.why, "seen": self.evidence, "needs": list(self.needs)}
        return {
            "code": self.code,
            "id": self.id,
            "message": self.message,
            "fix": self.fix,
            "blocking": self.blocking,
            **{key: value for key, value in optional.items() if value},
        }
