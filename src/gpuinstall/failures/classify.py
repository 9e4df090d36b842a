"""From an error's text to its causes: pure, best first, and empty where nothing is recognised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinstall.failures.circumstances import Circumstances
from gpuinstall.failures.repair import repair
from gpuinstall.failures.table import Advice, Failure, Lookalike, load_advice, load_failures, load_lookalikes
from gpuinstall.failures.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuinstall.machine import Machine

LEAST = 0.25
MOST = 5
CONSEQUENCE = 0.6
CORROBORATION = 0.01

CUDA_ERRORS = {
    3: "F14", 34: "F01", 35: "F02", 46: "F16", 100: "F15", 101: "F15", 209: "F37", 214: "F09", 222: "F67",
    801: "F18", 802: "F10", 803: "F03", 804: "F11", 999: "F12",
}  # fmt: skip


@dataclass(frozen=True)
class Cause:
    """A failure recognised in a text; ``confidence`` is 0 to 1, ``evidence`` the line or wrapped lines that show it."""

    id: str
    title: str
    confidence: float
    evidence: str
    fix: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Write the cause as the Explanation document holds it."""
        return {
            "id": self.id,
            "title": self.title,
            "confidence": self.confidence,
            "evidence": self.evidence,
            "fix": list(self.fix),
        }


def classify(
    text: str | Transcript,
    machine: Machine | None = None,
    context: Collection[str] = (),
    *,
    here: Machine | None = None,
) -> tuple[Cause, ...]:
    """Name the causes that ``text`` shows, best first.

    ``machine`` is the one it comes from, ``context`` names further circumstances that are known to hold. ``here`` is
    where the fix will be read, when the text may come from anywhere: it decides over commands, never over causes.
    """
    transcript = _read(text)
    circumstances = Circumstances(transcript, machine, context)
    found = [cause for failure in load_failures().values() if (cause := _seen(failure, transcript, circumstances))]
    return tuple(
        Cause(failure.id, failure.title, confidence, evidence, repair(failure.fix, machine or here, circumstances))
        for failure, confidence, evidence in _ranked(found)
    )


def lookalikes(text: str | Transcript) -> tuple[tuple[Lookalike, str], ...]:
    """Name what only looks like a fault of the GPU's stack, each with the line that shows it."""
    transcript = _read(text)
    found = ((known, next(filter(None, map(transcript.find, known.patterns)), None)) for known in load_lookalikes())
    return tuple((known, evidence) for known, evidence in found if evidence)


def advised(text: str | Transcript, causes: Sequence[Cause] = ()) -> tuple[Advice, ...]:
    """Name the wrong advice that is often given for the first of ``causes``, or that ``text`` itself gives."""
    transcript, first = _read(text), causes[0].id if causes else ""
    cited = load_failures()[first].advice if first else ()
    return tuple(
        advice
        for advice in load_advice().values()
        if advice.id in cited or (first not in advice.right and any(map(transcript.find, advice.patterns)))
    )


def cause_of(
    message: str, *, error_code: int | None = None, machine: Machine | None = None, context: Collection[str] = ()
) -> str | None:
    """Name the failure behind one message or CUDA error number; None where it is not known."""
    causes = classify(message, machine, context)
    if causes:
        return causes[0].id
    return None if error_code is None else CUDA_ERRORS.get(error_code)


def _read(text: str | Transcript) -> Transcript:
    return text if isinstance(text, Transcript) else Transcript(text)


def _seen(failure: Failure, transcript: Transcript, circumstances: Circumstances) -> tuple[Failure, float, str] | None:
    """Weigh a failure: its strongest sign, a little more for each further one."""
    matches = [
        (sign.weight, evidence)
        for sign in failure.signs
        if (evidence := transcript.find(sign.pattern)) is not None
        and all(map(circumstances.hold, sign.when))
        and not any(map(circumstances.hold, sign.unless))
    ]
    if not matches:
        return None
    weight, evidence = max(matches, key=lambda match: match[0])
    further = len({evidence for _, evidence in matches}) - 1
    return failure, min(0.99, weight + CORROBORATION * further), evidence


def _ranked(found: list[tuple[Failure, float, str]]) -> list[tuple[Failure, float, str]]:
    """LockOptions the failures; one that follows from another that is as sure counts less."""
    sure = {failure.id: confidence for failure, confidence, _ in found}
    consequences = {
        low
        for failure, confidence, _ in found
        for low in failure.behind
        if confidence >= sure.get(low, 1) * CONSEQUENCE
    }
    weighed = [
        (failure, round(confidence * (CONSEQUENCE if failure.id in consequences else 1), 2), evidence)
        for failure, confidence, evidence in found
    ]
    kept = [item for item in weighed if item[1] >= LEAST]
    return sorted(kept, key=lambda item: -item[1])[:MOST]
