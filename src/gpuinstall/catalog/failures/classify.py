"""From an error's text, and what surrounds it, to its causes: best first, and empty if nothing is recognised."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from gpuinstall.base.machine import Machine
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import numbers
from gpuinstall.catalog.failures import table
from gpuinstall.catalog.failures.observations import Observation, observe
from gpuinstall.catalog.failures.problems import (
    LINUX,
    FixContext,
    fix,
    own_keys,
    placeholders_in,
)
from gpuinstall.catalog.failures.transcript import Passage, Transcript

_Text = str | Transcript
_Placeholders = Mapping[str, str] | None

# How sure an answer is comes in three steps, each with numbers of its own from 0 to 1:
# - A weight says how strongly the text shows one failure: that of its strongest sign.
# - The weights near each other in a text make shares: their odds, weight to 1 - weight, share one with the case that it is
#   none of these failures.
# - A confidence is what is printed: a share from RELIABLE on as it is, a lower one cut.

# Weights.
LEAST_WEIGHT = 0.25
"""What weighs less misleads more than it helps."""
CONSEQUENCE_DISCOUNT = 0.6
"""What is left of the weight of a consequence that is explained."""
MOST_CAUSES = 5

# Shares.
RELIABLE = 0.9
"""From which share on an answer is as sure as it looks."""
OVERRATED = 0.7
"""What is left as confidence of a lower share."""
LEADING_SHARE = 0.74
"""From which share on a failure comes before all that a log says later: about three quarters of what its part may mean."""

# Confidences. None that comes of a share lies between RELIABLE * OVERRATED and RELIABLE.
MEASURED = 0.94
"""The highest that comes of a share.

On texts that took no part in the making 118 of 126 answers with such a share were right (of 95 such measurements in 100
the true part lies between 88 and 97 in 100), and 30 of 58 of the others (docs/evidence.md).
"""
CERTAIN = 0.99
"""What a text shows, and the machine where it failed too: more than any text alone can show. Several divide it."""
LIKELY = 0.65
"""What a symptom may be of, and the machine shows: to divide among all of them."""
LEAST_CONFIDENCE = 0.1
"""What is less sure is not said."""
UNSURE_BELOW = 0.7
"""What is less sure is called a possibility."""

APART = 60
"""Lines between two failures of one log: the frames of a traceback and the error that it caused are nearer."""

# Where a text may come from, the closest first.
ENGINES = (
    "kubernetes",
    "apptainer",
    "podman",
)
ORIGINS = (
    "wsl",
    "windows",
    *ENGINES,
    "container",
    "jetson",
    "conda",
    "macos",
)
# Those without a distribution.
OTHER_SYSTEMS = {"windows", "macos"}
ARM = ("aarch64", "arm64")
_OF_TORCH = re.compile(r"gpuinstall install(?! [\w'])|\btorch\b|TORCH_")
_ANOTHER_BUILD = (
    "A release of {program} that was built for this card and this driver, or "
    "compile it for them; torch is no part of it"
)
# A failure's number by itself, or a line of ours that ends with one: "error: … [F38]", "… [F38, 90% sure]".
_NUMBER = re.compile(
    r"(?:.*\[F|F?)(?P<number>\d{1,4})(?:, \d+% sure)?\]?", re.IGNORECASE
)


class RecognisedCause(Value):
    """A failure recognised in a text."""

    id: str
    title: str
    why: str
    confidence: float
    """From 0 to 1."""
    evidence: str
    """What shows it."""
    fix: tuple[str, ...]

    @property
    def is_unsure(self) -> bool:
        """Whether it is only a possibility."""
        return self.confidence < UNSURE_BELOW


class _Match(NamedTuple):
    """A failure that a text shows."""

    failure: table.Failure
    score: float
    """Its weight; of an answer the confidence that it is the cause."""
    evidence: str
    line: int


def classify(
    text: _Text,
    machine: Machine | None = None,
    *,
    here: Machine | None = None,
    placeholders: _Placeholders = None,
    faults: Mapping[str, str] | None = None,
) -> tuple[RecognisedCause, ...]:
    """Return the causes that a text shows, best first; of the number of a failure, this one.

    Args:
        text: The text.
        machine: The machine that it comes from.
        here: Where the fix will be read, if the text may come from anywhere: it decides over commands, never over
            causes.
        placeholders: What names the environment that the commands are for.
        faults: What is wrong on the machine where it failed, by the failures' ids: it decides between causes.
    """
    circumstances = Circumstances(text, machine)
    answers = _requested(circumstances.transcript)
    if not answers:
        matches = _matches(table.load_failures(), circumstances)
        answers = _decided(matches, faults or {}) or _ranked(matches)
    return _causes(
        answers,
        circumstances,
        machine or here,
        placeholders,
    )


def _requested(transcript: Transcript) -> list[_Match]:
    """Return the failure that a text is the number of, as ``F38`` or as our errors end with it."""
    number = _NUMBER.fullmatch("\n".join(transcript.lines).strip())
    failures = table.load_failures()
    entry = f"F{number['number']:0>2}" if number else ""
    if entry not in failures:
        return []
    return [_Match(failures[entry], score=1.0, evidence="", line=1)]


def _decided(matches: Sequence[_Match], faults: Mapping[str, str]) -> list[_Match]:
    """Return the failures that a text may show and that were found on the machine where it failed."""
    confidence = CERTAIN
    found = {match.failure.id: match for match in matches if match.failure.id in faults}
    # Symptoms alone fit many failures; a text that names a failure itself is not narrowed by them.
    if not found and all(match.failure.is_symptom for match in matches):
        confidence = LIKELY
        for match in matches:
            for entry in match.failure.narrows:
                failure = table.load_failures()[entry]
                if entry in faults:
                    found[entry] = match._replace(failure=failure)
    # Any of them may be the cause, each with an equal part of the confidence.
    return [
        match._replace(score=round(confidence / len(found), 2))
        for match in found.values()
    ]


def _causes(
    answers: Sequence[_Match],
    circumstances: Circumstances,
    machine: Machine | None,
    placeholders: _Placeholders,
) -> tuple[RecognisedCause, ...]:
    """Return answers with their fixes for the place that a text comes from, or for the machine that it is read on.

    Args:
        answers: The failures.
        circumstances: What surrounds them in the text.
        machine: Where the fix will be read; None: anywhere.
        placeholders: What names the environment that the commands are for.
    """
    if not answers:
        return ()
    context = circumstances.fix_context(machine).knowing(**placeholders or {})
    context = replace(context, is_legacy=circumstances.hold("legacy-gpu"))
    causes = []
    for answer in answers:
        failure = answer.failure
        # The lines that show a failure tell more of it than those around them.
        told = Circumstances(answer.evidence).placeholders_of(True)
        commands = fix(failure.id, context.knowing(**told))
        cause = RecognisedCause(
            failure.id,
            failure.title,
            circumstances.why(failure),
            confidence=answer.score,
            evidence=answer.evidence,
            fix=circumstances.for_program(commands),
        )
        causes.append(cause)
    return tuple(causes)


def lookalikes(
    text: _Text,
    *,
    here: Machine | None = None,
    placeholders: _Placeholders = None,
) -> tuple[RecognisedCause, ...]:
    """Return what only looks like a fault of the GPU's stack; the arguments are those of :func:`classify`."""
    circumstances = Circumstances(text)
    matches = _matches(table.load_lookalikes(), circumstances)
    return _causes(matches, circumstances, here, placeholders)


class Circumstances:
    """Whether named circumstances hold; each is looked for once, when it is first asked for."""

    def __init__(
        self,
        text: _Text,
        machine: Machine | None = None,
    ) -> None:
        self.transcript = text if isinstance(text, Transcript) else Transcript(text)
        shown = (*_of_platform(machine), *_of_gpus(machine)) if machine else ()
        self._known = dict.fromkeys(shown, True)

    @cached_property
    def observations(self) -> tuple[Observation, ...]:
        """What the lines of the text state."""
        return observe(self.transcript.messages)

    def hold(self, name: str) -> bool:
        """Whether the circumstance or the observation ``name`` holds."""
        if name not in self._known:
            self._known[name] = self._is_shown(name)
        return self._known[name]

    def _is_shown(self, name: str) -> bool:
        patterns = table.load_circumstances().get(name)
        if patterns is None:
            return any(observation.name == name for observation in self.observations)
        return any(map(self.transcript.find, patterns))

    def locate(self, sign: table.Sign) -> Passage | Observation | None:
        """Return the first line that shows a sign, whatever surrounds it."""
        if sign.says:
            return self.transcript.messages.find(sign.says)
        if sign.runs:
            return self.transcript.find(sign.runs)
        for observation in self.observations:
            if sign.sees and sign.sees.fullmatch(observation.name):
                return observation
        return None

    def possible(self) -> set[str]:
        """Return the failures that the text may be of, sure or not: those that it shows, and what symptoms narrow to."""
        entries = set[str]()
        for match in _matches(table.load_failures(), self):
            entries |= {match.failure.id, *match.failure.narrows}
        return entries

    def fix_context(self, machine: Machine | None) -> FixContext:
        """Return where a fix will be applied: on the system that the text tells, else on ``machine``."""
        context = (
            FixContext.of_machine(machine)
            if machine
            else FixContext(own_keys(LINUX, None))
        )
        systems = [name for name in ORIGINS if self.hold(name)]
        if systems or "distribution" in self.placeholders or self.hold("native-linux"):
            context = replace(context, keys=self._keys_told(systems, machine))
        context = replace(context, is_about=self._is_about)
        return context.knowing(**self.placeholders)

    def _is_about(self, key: str) -> bool:
        """Whether a key of a fix, which is none of a place, is what the text tells or states."""
        if key in ORIGINS:
            return False
        # A circumstance may have the name of a placeholder.
        is_told = key in self.placeholders and key not in table.load_circumstances()
        return is_told or self.hold(key)

    def _keys_told(
        self, systems: list[str], machine: Machine | None
    ) -> tuple[str, ...]:
        """Return the keys of the system that the text tells.

        Of a distribution or a container without a name, this machine's own is the likely one.
        """
        engine = machine.environment.container if machine else None
        if engine and "container" in systems and set(ENGINES).isdisjoint(systems):
            systems.insert(0, engine)
        if not OTHER_SYSTEMS.isdisjoint(systems):
            return tuple(systems)
        distribution = self.placeholders.get("distribution")
        if machine and not distribution:
            distribution = machine.distribution
        return (*systems, *own_keys(LINUX, distribution))

    @property
    def is_of_another_program(self) -> bool:
        """Whether the text is of a program that has nothing to do with torch."""
        return self.hold("other-asker") and not self.hold("torch")

    def for_program(self, commands: tuple[str, ...]) -> tuple[str, ...]:
        """Return commands without those that bring a build of torch, if the text is of another program."""
        if not self.is_of_another_program:
            return commands
        program = self.placeholders.get("program", "the program")
        lines = [line for line in commands if not _OF_TORCH.search(line)]
        return tuple(lines) or (_ANOTHER_BUILD.format(program=program),)

    def why(self, failure: table.Failure) -> str:
        """Return why a failure occurs: of several reasons the one that the text tells, with its own versions and names."""
        for key, sentence in failure.why.items():
            is_told = key in self.placeholders or self.hold(key)
            if is_told and placeholders_in(sentence) <= self.placeholders.keys():
                return sentence.format_map(self.placeholders)
        return failure.cause

    @cached_property
    def placeholders(self) -> dict[str, str]:
        """What the text tells of the placeholders of fixes."""
        return self.placeholders_of(False)

    def placeholders_of(self, line: bool) -> dict[str, str]:
        """Return what the text tells of all placeholders, or of those that are told best by one ``line``."""
        values: dict[str, str] = {}
        for row in table.load_readings():
            if row.of_line < line or row.fills.keys() <= values.keys():
                continue
            passage = self.transcript.find(row.says)
            if passage is None:
                continue
            spell = passage.spelled if row.of_line else passage.expand
            for placeholder, template in row.fills.items():
                value = spell(template)
                if value:
                    values.setdefault(placeholder, value)
        return values


def _matches(
    failures: Mapping[str, table.Failure],
    circumstances: Circumstances,
) -> list[_Match]:
    """Return the failures among some that a text shows, each weighed by its strongest sign."""
    hold = circumstances.hold
    matches = []
    for failure in failures.values():
        for sign in sorted(failure.signs, key=lambda sign: -sign.weight):
            passage = circumstances.locate(sign)
            ruled_out_by = (*failure.unless, *sign.unless)
            if (
                passage
                and all(map(hold, sign.when))
                and not any(map(hold, ruled_out_by))
            ):
                line, quotation = passage.line, passage.quotation
                matches.append(_Match(failure, sign.weight, quotation, line))
                break
    return matches


def _ranked(matches: Sequence[_Match]) -> list[_Match]:
    """Return the likely failures in their order."""
    likely = [match for match in _weighed(matches) if match.score >= LEAST_WEIGHT]
    leading: list[_Match] = []
    others: list[_Match] = []
    for group in _groups_in_time(_best_first(likely)[:MOST_CAUSES]):
        causes = _best_first(group)
        shares = _shares(causes)
        # Of several failures in a log the first that leads comes first: the later ones may follow from it.
        answers = leading if shares[0] >= LEADING_SHARE else others
        for cause, share in zip(causes, shares, strict=True):
            answers.append(cause._replace(score=_confidence(share)))
    answers = leading + _best_first(others)
    return [answer for answer in answers if answer.score >= LEAST_CONFIDENCE]


def _groups_in_time(matches: Iterable[_Match]) -> list[list[_Match]]:
    """Return what stands near each other in a log as groups, in its order: each group is of one failure."""
    groups: list[list[_Match]] = []
    end = -APART
    for match in sorted(matches, key=lambda match: match.line):
        if match.line - end > APART:
            groups.append([])
        groups[-1].append(match)
        end = match.line
    return groups


def _best_first(matches: Iterable[_Match]) -> list[_Match]:
    return sorted(matches, key=lambda match: -match.score)


def _weighed(matches: Sequence[_Match]) -> list[_Match]:
    """Return the failures: one that another explains counts less, a mere symptom only by itself."""
    causes = [match for match in matches if not match.failure.is_symptom] or matches
    consequences = set[str]()
    for match in causes:
        consequences.update(match.failure.consequences)
    weighed = []
    for match in causes:
        score = match.score
        if match.failure.id in consequences:
            score *= CONSEQUENCE_DISCOUNT
        weighed.append(match._replace(score=score))
    return weighed


def _shares(group: Sequence[_Match]) -> list[float]:
    """Return the share of each of the failures that one part of a text may be of."""
    odds = [match.score / (1 - match.score) for match in group]
    total = 1 + sum(odds)
    return [round(odd / total, 2) for odd in odds]


def _confidence(share: float) -> float:
    if share < RELIABLE:
        share = round(share * OVERRATED, 2)
    return min(share, MEASURED)


def _of_platform(machine: Machine) -> Iterator[str]:
    """Yield the circumstances that a machine shows, but for those of its GPUs."""
    keys = FixContext.of_machine(machine).keys
    places = {"wsl", "container", "jetson", *OTHER_SYSTEMS}.intersection(keys)
    yield from places or {"native-linux"}
    if LINUX in keys and "jetson" not in places and machine.arch in ARM:
        yield "aarch64"
        yield "aarch64-server"


def _of_gpus(machine: Machine) -> Iterator[str]:
    """Compare the driver's branch, its CUDA and the GPUs with the bounds of the table."""
    driver = machine.driver
    capabilities = sorted(
        filter(None, (gpu.compute_capability for gpu in machine.gpus))
    )
    # Where GPUs of several majors are, what holds of the newest one says nothing of the others.
    is_mixed = len({capability.major for capability in capabilities}) > 1
    known: dict[str, list[tuple[int, ...]]] = {
        "driver": [(driver.version.branch,)] if driver and driver.version else [],
        "cuda": [driver.cuda] if driver and driver.cuda else [],
        "newest": [] if is_mixed else [*capabilities[-1:]],
        "any": [*capabilities],
    }
    for row in table.read_table("circumstances")["machine"]:
        low = numbers(row.get("from", "0"))
        high = numbers(row.get("below", "1000"))
        if any(low <= number < high for number in known[row["of"]]):
            yield from row["holds"]
    if is_mixed:
        yield "mixed"
    if any(gpu.mig for gpu in machine.gpus):
        yield "mig"
