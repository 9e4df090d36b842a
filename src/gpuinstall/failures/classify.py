"""From an error's text, and what surrounds it, to its causes: best first, and empty where nothing is recognised."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gpuinstall.failures import table
from gpuinstall.failures.observations import Observation, observe
from gpuinstall.failures.problems import ANYWHERE, LINUX, FixContext, fix, release_keys
from gpuinstall.failures.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.machine import Machine

LEAST = 0.25  # what is less sure than one in four misleads more than it helps
SURE = 0.52
"""What is at least as sure leads its part of a log."""
RELIABLE, OVERRATED = 0.9, 0.7
"""From which share on an answer is as sure as it looks, and what is left of a lower one.

On texts that took no part in the making 58 of 59 of the former were right, and 14 of 29 of the latter
(docs/evidence/explain.md).
"""
PERHAPS = 0.7
"""What is less sure is said as a possibility, with the command that would decide."""
MOST = 5
CONSEQUENCE = (
    0.6  # what is left of a failure's weight where another one that is as sure explains it
)
CORROBORATION = (
    0.01  # what each further sign adds: it decides between equals and changes no order else
)
# Lines between two failures of one log: the frames of a traceback and the error that it caused are nearer.
APART = 60

# Where a text may come from, the closest first; the last of them are systems without a distribution.
ENGINES = ("kubernetes", "apptainer", "podman")
PLACES = ("wsl", "windows", *ENGINES, "container", "conda", "macos")
# Whose package a text is about: some fixes are theirs.
ASKERS = ("onnxruntime", "ctranslate2", "tensorflow", "jax", "cupy", "paddle", "numba")
OTHER_SYSTEMS = {"windows", "macos"}
ARM = ("aarch64", "arm64")
# A failure's number by itself, or a line of ours that ends with one: "error: … [F38]", "… [F38, 90% sure]".
_NUMBER = re.compile(r"(?:.*\[)?F(?P<number>\d+)(?:, \d+% sure)?\]?", re.IGNORECASE)


@dataclass(frozen=True)
class RecognisedCause:
    """A failure recognised in a text; ``confidence`` is 0 to 1, ``evidence`` shows it, ``line`` is where, from 1."""

    id: str
    title: str
    confidence: float
    evidence: str
    line: int
    fix: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Write the cause as the Explanation document holds it."""
        return asdict(self) | {"fix": list(self.fix)}


class _Match(NamedTuple):
    failure: table.Failure
    weight: float
    evidence: str
    line: int


_Located = TypeVar("_Located", RecognisedCause, _Match)


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
    circumstances = Circumstances(_read(text), machine)
    failures = table.load_failures().values()
    matches = [match for failure in failures if (match := _match(failure, circumstances))]
    if not matches:
        return ()
    context = circumstances.fix_context(machine or here).knowing(**(words or {}))
    legacy = circumstances.hold("legacy-gpu")
    causes = []
    for failure, confidence, evidence, line in _ranked(matches):
        commands = fix(failure.id, context, legacy=legacy)
        causes.append(
            RecognisedCause(failure.id, failure.title, confidence, evidence, line, commands)
        )
    return tuple(causes)


def requested_failure(
    text: str,
    machine: Machine | None = None,
    *,
    here: Machine | None = None,
    words: Mapping[str, str] | None = None,
) -> RecognisedCause | None:
    """Return the failure that ``text`` is the number of, as ``F38`` or as our errors end with it; else None.

    The other arguments are those of :func:`classify`.
    """
    number = _NUMBER.fullmatch(text.strip())
    identity = f"F{number['number']:0>2}" if number else ""
    failure = table.load_failures().get(table.load_aliases().get(identity, identity))
    if failure is None:
        return None
    circumstances = Circumstances(_read(text), machine)
    context = circumstances.fix_context(machine or here).knowing(**(words or {}))
    commands = fix(failure.id, context, legacy=circumstances.hold("legacy-gpu"))
    return RecognisedCause(
        failure.id, failure.title, confidence=1.0, evidence="", line=1, fix=commands
    )


def deciding_command(
    text: str | Transcript, causes: Sequence[RecognisedCause], machine: Machine | None = None
) -> str | None:
    """Return the command that would tell the first of ``causes`` from the next; None if it is sure enough.

    It shows the circumstance that most of their signs ask for and that the text does not tell.
    """
    if not causes or causes[0].confidence >= PERHAPS:
        return None
    circumstances = Circumstances(_read(text), machine)
    signs = [
        sign
        for cause in causes[:2]
        for sign in table.load_failures()[cause.id].signs
        if circumstances.place(sign)
    ]
    asked = Counter(
        name
        for sign in signs
        for name in (*sign.when, *sign.unless)
        if not circumstances.hold(name)
    )
    commands = table.load_shown_by()
    return next((commands[name] for name, _ in asked.most_common() if name in commands), None)


def is_of_an_unknown_place(text: str | Transcript, causes: Sequence[RecognisedCause]) -> bool:
    """Whether the commands of the first of ``causes`` differ by system, and the text does not say which it is of."""
    systems = (
        table.load_failures()[causes[0].id].fix.commands.keys() - {ANYWHERE, *ASKERS}
        if causes
        else ()
    )
    return len(systems) > 1 and not Circumstances(_read(text), None).say_where()


def in_time(items: Iterable[_Located]) -> tuple[tuple[_Located, ...], ...]:
    """Group what stands near each other in a log, in its order: each group is of one failure."""
    groups: list[list[_Located]] = []
    for item in sorted(items, key=lambda item: item.line):
        if groups and item.line - groups[-1][-1].line <= APART:
            groups[-1].append(item)
        else:
            groups.append([item])
    return tuple(map(tuple, groups))


def lookalikes(text: str | Transcript) -> tuple[tuple[table.Lookalike, str], ...]:
    """Name what only looks like a fault of the GPU's stack, each with the line that shows it."""
    transcript = _read(text)
    shown = (
        (kind, next(filter(None, map(transcript.find, kind.patterns)), None))
        for kind in table.load_lookalikes()
    )
    return tuple((kind, line) for kind, line in shown if line)


def advised(
    text: str | Transcript, causes: Sequence[RecognisedCause] = ()
) -> tuple[table.RefutedAdvice, ...]:
    """Name the wrong advice that is often given for the first of ``causes``, or that ``text`` itself gives."""
    transcript, first = _read(text), causes[0].id if causes else ""
    cited = table.load_failures()[first].advice if first else ()
    return tuple(
        advice
        for advice in table.load_advice().values()
        if advice.id in cited
        or (first not in advice.right and any(map(transcript.find, advice.patterns)))
    )


def cause_of(message: str, machine: Machine | None = None) -> str | None:
    """Name the failure behind one message; None where it is not known."""
    causes = classify(message, machine)
    return causes[0].id if causes else None


def fix_context(text: str, machine: Machine) -> FixContext:
    """Say where the fix of a message will be applied, which comes from ``machine``."""
    return Circumstances(Transcript(text), machine).fix_context(machine)


class Circumstances:
    """Answers whether a named circumstance holds; each is looked for once, and only when asked for."""

    def __init__(self, transcript: Transcript, machine: Machine | None) -> None:
        self._transcript = transcript
        self._held = dict.fromkeys(circumstances_of(machine) if machine else (), True)

    @cached_property
    def observations(self) -> tuple[Observation, ...]:
        """What the lines of the text state."""
        return observe(self._transcript)

    def hold(self, name: str) -> bool:
        """Say whether the circumstance or the observation ``name`` holds."""
        if name not in self._held:
            self._held[name] = self._is_shown(name)
        return self._held[name]

    def _is_shown(self, name: str) -> bool:
        patterns = table.load_circumstances().get(name)
        if patterns is None:
            return any(observation.name == name for observation in self.observations)
        return any(self._transcript.find(pattern) is not None for pattern in patterns)

    def place(self, sign: table.Sign) -> tuple[int, str] | None:
        """Return the first line that shows a sign, with its number, whatever surrounds it."""
        if sign.pattern is not None:
            place = self._transcript.first(sign.pattern)
            return (place.line, place.quotation) if place else None
        seen = (
            observation
            for observation in self.observations
            if sign.sees and sign.sees.fullmatch(observation.name)
        )
        first = next(seen, None)
        return (first.line, first.quotation) if first else None

    def say_where(self) -> bool:
        """Say whether the text tells on which system, or in what, the failure was."""
        return "distribution" in self._words() or any(map(self.hold, (*PLACES, "native-linux")))

    def fix_context(self, machine: Machine | None) -> FixContext:
        """Say where a fix will be applied: what the text says goes before the machine on which it is read."""
        words = self._words()
        askers = tuple(name for name in ASKERS if self.hold(name))
        here = (
            (FixContext.of_machine(machine) if machine else FixContext((LINUX,)))
            .knowing(**words)
            .near(*askers)
        )
        if not self.say_where():
            return here
        places = tuple(name for name in PLACES if self.hold(name))
        distribution = (
            words.get("distribution") or (machine.distribution if machine else None) or ""
        )
        system = () if OTHER_SYSTEMS.intersection(places) else (*release_keys(distribution), LINUX)
        named = "container" not in places or any(engine in places for engine in ENGINES)
        engine = None if named or machine is None else machine.environment.container
        return FixContext((*askers, *([engine] if engine else ()), *places, *system), here.words)

    def _words(self) -> dict[str, str]:
        words: dict[str, str] = {}
        for row in table.load_readings():
            if row.word not in words and (value := self._transcript.read(row.pattern, row.value)):
                words[row.word] = value
        return words


def circumstances_of(machine: Machine) -> frozenset[str]:
    """Name the circumstances that a machine shows."""
    return frozenset((*_of_platform(machine), *_of_gpus(machine)))


def _read(text: str | Transcript) -> Transcript:
    return text if isinstance(text, Transcript) else Transcript(text)


def _match(failure: table.Failure, circumstances: Circumstances) -> _Match | None:
    """Weigh a failure: its strongest sign, a little more for each further line that shows it."""
    if any(map(circumstances.hold, failure.unless)):
        return None
    weights: dict[tuple[int, str], float] = {}
    for sign in failure.signs:
        place = circumstances.place(sign)
        if (
            place is None
            or not all(map(circumstances.hold, sign.when))
            or any(map(circumstances.hold, sign.unless))
        ):
            continue
        weights[place] = max(sign.weight, weights.get(place, 0))
    if not weights:
        return None
    line, evidence = max(weights, key=lambda place: weights[place])
    weight = weights[line, evidence] + CORROBORATION * (len(weights) - 1)
    return _Match(failure, min(0.99, weight), evidence, line)


def _ranked(matches: list[_Match]) -> list[_Match]:
    """Order the failures; what follows from another that is as sure counts less, a mere symptom only by itself."""
    causes = [match for match in matches if not match.failure.narrows] or matches
    sure = {match.failure.id: match.weight for match in causes}
    pairs = ((low, match.weight) for match in causes for low in match.failure.behind)
    consequences = {low for low, weight in pairs if weight >= sure.get(low, 1) * CONSEQUENCE}
    weighed = [
        match._replace(weight=match.weight * CONSEQUENCE)
        if match.failure.id in consequences
        else match
        for match in causes
    ]
    kept = sorted(
        (match for match in weighed if match.weight >= LEAST), key=lambda match: -match.weight
    )[:MOST]
    # One is shared among what a failure may be of, and the chance that it is none of them.
    ranks: dict[str, tuple[int, float]] = {}
    groups = in_time(kept)
    for number, group in enumerate(groups):
        odds = {match.failure.id: match.weight / (1 - match.weight) for match in group}
        total = 1 + sum(odds.values())
        shares = {cause: _measured(odd / total) for cause, odd in odds.items()}
        # Of several failures in a log the first that is sure comes first: the later ones may follow from it.
        place = number if max(shares.values()) >= SURE else len(groups)
        ranks |= {cause: (place, -share) for cause, share in shares.items()}
    ranked = sorted(kept, key=lambda match: ranks[match.failure.id])
    return [match._replace(weight=-ranks[match.failure.id][1]) for match in ranked]


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
    driver, capabilities = (
        machine.driver,
        {gpu.compute_capability for gpu in machine.gpus if gpu.compute_capability},
    )
    mixed = len({capability.major for capability in capabilities}) > 1
    numbers: dict[str, list[tuple[int, ...]]] = {
        "driver": [(driver.version.branch,)] if driver and driver.version else [],
        "cuda": [tuple(driver.cuda)] if driver and driver.cuda else [],
        "newest": [] if mixed or not capabilities else [tuple(max(capabilities))],
        "any": list(map(tuple, capabilities)),
    }
    for row in table.load_machine_circumstances():
        if any(
            _is_within(row[name], value)
            for name, values in numbers.items()
            if name in row
            for value in values
        ):
            yield from row["holds"]
    if mixed:
        yield "mixed"
    if any(gpu.mig for gpu in machine.gpus):
        yield "mig"


def _is_within(bounds: Mapping[str, Any], value: tuple[int, ...]) -> bool:
    texts = (bounds.get(name) for name in ("from", "to", "below"))
    low, high, end = (tuple(map(int, text.split("."))) if text else None for text in texts)
    return (
        (low is None or value >= low)
        and (high is None or value <= high)
        and (end is None or value < end)
    )


def _measured(share: float) -> float:
    """Return how often an answer of this share is right."""
    share = round(share, 2)
    return share if share >= RELIABLE else round(share * OVERRATED, 2)
