"""From an error's text, and what surrounds it, to its causes: best first, and empty where nothing is recognised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinstall.failures.problems import LINUX, FixContext, distribution_keys, fix
from gpuinstall.failures.table import (
    Failure,
    Lookalike,
    RefutedAdvice,
    load_advice,
    load_circumstances,
    load_errors,
    load_failures,
    load_lookalikes,
    load_machine_circumstances,
    load_problems,
)
from gpuinstall.failures.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.machine import Machine

LEAST = 0.25
MOST = 5
CONSEQUENCE = 0.6
CORROBORATION = 0.01

# Where a text may come from, the closest first; the last of them are systems without a distribution.
PLACES = ("wsl", "windows", "container", "conda", "macos")
OTHER_SYSTEMS = {"windows", "macos"}
ARM = ("aarch64", "arm64")


@dataclass(frozen=True)
class RecognisedCause:
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
    *,
    here: Machine | None = None,
    words: Mapping[str, str] | None = None,
) -> tuple[RecognisedCause, ...]:
    """Name the causes that ``text`` shows, best first.

    ``machine`` is the one it comes from. ``here`` is where the fix will be read, when the text may come from anywhere:
    it decides over commands, never over causes; ``words`` name the environment that they are for.
    """
    transcript = _read(text)
    circumstances = Circumstances(transcript, machine)
    found = [cause for failure in load_failures().values() if (cause := _seen(failure, transcript, circumstances))]
    if not found:
        return ()
    context = circumstances.fix_context(machine or here).knowing(**(words or {}))
    legacy = circumstances.hold("legacy-gpu")
    return tuple(
        RecognisedCause(failure.id, failure.title, confidence, evidence, fix(failure.id, context, legacy=legacy))
        for failure, confidence, evidence in _ranked(found)
    )


def lookalikes(text: str | Transcript) -> tuple[tuple[Lookalike, str], ...]:
    """Name what only looks like a fault of the GPU's stack, each with the line that shows it."""
    transcript = _read(text)
    found = ((known, next(filter(None, map(transcript.find, known.patterns)), None)) for known in load_lookalikes())
    return tuple((known, evidence) for known, evidence in found if evidence)


def advised(text: str | Transcript, causes: Sequence[RecognisedCause] = ()) -> tuple[RefutedAdvice, ...]:
    """Name the wrong advice that is often given for the first of ``causes``, or that ``text`` itself gives."""
    transcript, first = _read(text), causes[0].id if causes else ""
    cited = load_failures()[first].advice if first else ()
    return tuple(
        advice
        for advice in load_advice().values()
        if advice.id in cited or (first not in advice.right and any(map(transcript.find, advice.patterns)))
    )


def cause_of(message: str, *, error_code: int | None = None, machine: Machine | None = None) -> str | None:
    """Name the failure behind one message or CUDA error number; None where it is not known."""
    causes = classify(message, machine)
    if causes:
        return causes[0].id
    error = None if error_code is None else load_errors("cuda").get(error_code)
    return load_problems()[error.code].id if error else None


def fix_context(text: str, machine: Machine) -> FixContext:
    """Say where the fix of a message will be applied, which comes from ``machine``."""
    return Circumstances(Transcript(text), machine).fix_context(machine)


class Circumstances:
    """Answers whether a named circumstance holds; each is looked for once, and only when asked for."""

    def __init__(self, transcript: Transcript, machine: Machine | None) -> None:
        self._transcript = transcript
        self._held = dict.fromkeys(circumstances_of(machine) if machine else (), True)

    def hold(self, name: str) -> bool:
        """Say whether the circumstance ``name`` holds."""
        if name not in self._held:
            patterns = load_circumstances()[name]
            self._held[name] = any(self._transcript.find(pattern) is not None for pattern in patterns)
        return self._held[name]

    def fix_context(self, machine: Machine | None) -> FixContext:
        """Say where a fix will be applied: what the text says goes before the machine on which it is read."""
        here = FixContext.of_machine(machine) if machine else FixContext((LINUX,))
        told = tuple(name for name in PLACES if self.hold(name))
        if not told and not self.hold("native-linux"):
            return here
        distribution = (machine.distribution if machine else None) or ""
        system = () if OTHER_SYSTEMS.intersection(told) else (*distribution_keys(distribution), LINUX)
        engine = (machine.environment.container,) if machine and "container" in told else ()
        return FixContext((*filter(None, engine), *told, *system), here.words)


def circumstances_of(machine: Machine) -> frozenset[str]:
    """Name the circumstances that a machine shows."""
    return frozenset((*_of_platform(machine), *_of_gpus(machine)))


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
    """Order the failures; what follows from another that is as sure counts less, a mere symptom only by itself."""
    causes = [item for item in found if not item[0].narrows] or found
    sure = {failure.id: weight for failure, weight, _ in causes}
    consequences = {
        low for failure, weight, _ in causes for low in failure.behind if weight >= sure.get(low, 1) * CONSEQUENCE
    }
    weighed = [
        (failure, weight * (CONSEQUENCE if failure.id in consequences else 1), evidence)
        for failure, weight, evidence in causes
    ]
    kept = sorted((item for item in weighed if item[1] >= LEAST), key=lambda item: -item[1])[:MOST]
    everything = 1 + sum(_odds(weight) for _, weight, _ in kept)
    return [(failure, round(_odds(weight) / everything, 2), evidence) for failure, weight, evidence in kept]


def _odds(weight: float) -> float:
    """What one sign says by itself; among alternatives, they and the chance that it is none of them share the whole."""
    return weight / (1 - weight)


def _of_platform(machine: Machine) -> Iterator[str]:
    environment = machine.environment
    around = {"wsl": environment.wsl, "container": environment.container, "jetson": environment.l4t}
    yield from (name for name, there in around.items() if there)
    if machine.os in OTHER_SYSTEMS:
        yield machine.os
    elif not any(around.values()):
        yield "native-linux"
    if machine.arch in ARM and machine.os == LINUX and not environment.l4t:
        yield from ("aarch64", "aarch64-server")


def _of_gpus(machine: Machine) -> Iterator[str]:
    """Compare the driver's branch, its CUDA and the GPUs with the bounds of the table."""
    driver, capabilities = machine.driver, {gpu.compute_capability for gpu in machine.gpus if gpu.compute_capability}
    mixed = len({capability.major for capability in capabilities}) > 1
    found: dict[str, list[tuple[int, ...]]] = {
        "driver": [(driver.version.branch,)] if driver and driver.version else [],
        "cuda": [tuple(driver.cuda)] if driver and driver.cuda else [],
        "newest": [] if mixed or not capabilities else [tuple(max(capabilities))],
        "any": list(map(tuple, capabilities)),
    }
    for row in load_machine_circumstances():
        if any(_is_within(row[name], value) for name, values in found.items() if name in row for value in values):
            yield from row["holds"]
    if mixed:
        yield "mixed"
    if any(gpu.mig for gpu in machine.gpus):
        yield "mig"


def _is_within(bounds: Mapping[str, Any], value: tuple[int, ...]) -> bool:
    low, high, end = (_numbers(bounds.get(name)) for name in ("from", "to", "below"))
    return (low is None or value >= low) and (high is None or value <= high) and (end is None or value < end)


def _numbers(text: str | None) -> tuple[int, ...] | None:
    return tuple(map(int, text.split("."))) if text else None
