"""Find the possible causes of an error message, the likeliest first. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from gpuinstall.base.advice import Hint
from gpuinstall.base.machine import Machine
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import version_key
from gpuinstall.catalog.failures import table
from gpuinstall.catalog.failures.problems import (
    LINUX,
    FixContext,
    fix,
    own_keys,
    placeholders_in,
)
from gpuinstall.catalog.failures.transcript import Passage, Transcript

RELIABLE = 0.9
"""The minimum weight of a sign whose cause is considered certain."""
LEAST_ODDS = 0.1
"""The minimum odds of a reported cause, relative to the likeliest."""
MAX_CAUSES = 3

# The systems in which a text may originate, the innermost first.
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
# The systems that have no Linux distribution.
OTHER_SYSTEMS = {"windows", "macos"}
ARM = ("aarch64", "arm64")
ERROR = table.Pattern(
    # Some errors only report that a step failed because of an earlier one.
    r"(\b\w{0,40}(error|exception): (?!failed (building|to build)|could not build|ld returned|no matching dist|dataloader"
    r" worker|engine core|command )\S|segmentation fault|段错误|\bfatal: |\bpanicked)"
)
# On a machine with a GPU of another vendor, or with its imitation of CUDA, NVIDIA's messages have other causes.
OTHER_VENDORS = ("macos", "amd-gpu", "intel-gpu", "other-maker")
_OF_NVIDIA = ("Driver, kernel module, device nodes", "Detection traps")
_OF_ENVIRONMENT = {"python", "prefix", "at", "into", "anew", "cuda", "toolkit"}
"""The placeholders for the environment."""
_NAMED = re.compile(
    r"[\w.+-]+\.(?:so|dll|pyd|dylib)\b|(?:site|dist)-packages[/\\]+[\w-]+"
)
"""A file or package that a line names."""
_ANOTHER_BUILD = (
    "A release of {program} that was built for this GPU and driver, or "
    "compile it for them; torch is no part of it"
)
# A failure ID, or a message of gpuinstall that ends with one: "error: … [F38]".
_NUMBER = re.compile(r"(?:.*\[F|F?)(\d{1,4})\]?", re.IGNORECASE)


class RecognizedCause(Value):
    """A failure that an error message or log indicates."""

    id: str
    title: str
    why: str
    certainty: Literal["certain", "possible"]
    """A cause is certain if the message states it, without counterevidence."""
    evidence: str
    """The lines of the text that indicate the failure."""
    fix: tuple[Hint, ...]


class Match(NamedTuple):
    """A failure, with the sign of the highest weight in a text."""

    failure: table.Failure
    weight: float
    """The weight of the strongest sign, from 0 to 1."""
    evidence: str
    line: int


def classify(
    text: str,
    machine: Machine | None = None,
    placeholders: Mapping[str, str] | None = None,
) -> tuple[RecognizedCause, ...]:
    """Return the possible causes of an error message, likeliest first.

    Args:
        text: The text, or the ID of a failure.
        machine: The machine that printed the text, if known.
        placeholders: The values of placeholders that the text lacks.
    """
    conditions = Conditions(text, known_of(machine) if machine else ())
    matches = requested(conditions.transcript) or rank(
        find_matches(table.load_failures(), conditions)
    )
    return causes_of(matches, conditions, machine, placeholders)


def requested(transcript: Transcript) -> list[Match]:
    """Return the failure whose ID is the whole text, if any."""
    number = _NUMBER.fullmatch("\n".join(transcript.lines).strip())
    failure = table.load_failures().get(f"F{number[1]:0>2}") if number else None
    return [Match(failure, weight=1.0, evidence="", line=1)] if failure else []


def rank(matches: Sequence[Match]) -> list[Match]:
    """Select the likely causes among the matches, likeliest first.

    Symptoms are included only if there is no other cause. Consequences of another
    cause are omitted.
    """
    causes = [match for match in matches if not match.failure.is_symptom] or matches
    found = {match.failure.id for match in causes}
    causes = [match for match in causes if found.isdisjoint(match.failure.unless)]
    causes.sort(key=lambda match: (-match.weight, match.line))
    likely = [one for one in causes if _odds(one) >= LEAST_ODDS * _odds(causes[0])]
    return likely[:MAX_CAUSES]


def _odds(match: Match) -> float:
    return match.weight / max(1 - match.weight, 0.01)


def causes_of(
    matches: Sequence[Match],
    conditions: Conditions,
    machine: Machine | None,
    placeholders: Mapping[str, str] | None = None,
) -> tuple[RecognizedCause, ...]:
    """Return the recognized causes with fixes for one machine.

    Args:
        matches: The failures and similar errors. Only a single one can be certain.
        conditions: The conditions that the text meets.
        machine: The machine whose commands are selected, if known.
        placeholders: The values of placeholders for the environment.
    """
    context = conditions.fix_context(machine)
    words = placeholders or {}
    python = words.get("python")
    # The text is about another environment.
    if conditions.placeholders.get("python", python) != python:
        words = {name: words[name] for name in words.keys() - _OF_ENVIRONMENT}
    causes = []
    for match in matches:
        failure = match.failure
        is_certain = len(matches) == 1 and conditions.confirm(match)
        # Prefer placeholders from the lines that show the failure.
        closest = Conditions(match.evidence).placeholders_of(True)
        known = context.knowing(**closest).knowing(**words)
        causes.append(
            RecognizedCause(
                failure.id,
                failure.title,
                conditions.why(failure),
                certainty="certain" if is_certain else "possible",
                evidence=match.evidence,
                fix=conditions.for_program(fix(failure.id, known)),
            )
        )
    return tuple(causes)


class Conditions:
    """The conditions that a text meets."""

    def __init__(self, text: str | Transcript, known: Iterable[str] = ()) -> None:
        self.transcript = text if isinstance(text, Transcript) else Transcript(text)
        self._known = {*known}

    @cached_property
    def passages(self) -> dict[str, Passage]:
        """The first lines that show each condition, in their order."""
        found: dict[str, Passage] = {}
        for row in table.load_conditions():
            for passage in self._search(row):
                name = row.name_of(passage.match)
                if name and (name not in found or passage.line < found[name].line):
                    found[name] = passage
        return dict(sorted(found.items(), key=lambda item: item[1].line))

    def _search(self, row: table.Condition) -> Iterator[Passage]:
        for pattern in row.says:
            yield from self.transcript.messages.passages(pattern)
        yield from filter(None, map(self.transcript.find, row.runs))

    @cached_property
    def placeholders(self) -> dict[str, str]:
        """The values in the text for placeholders of fixes."""
        return self.placeholders_of(False)

    def placeholders_of(self, line: bool) -> dict[str, str]:
        """Return the values of placeholders, from a line or from the text."""
        values: dict[str, str] = {}
        for row in table.load_conditions():
            is_read = row.fills and row.of_line >= line
            passage = next(self._search(row), None) if is_read else None
            for placeholder, template in row.fills.items():
                value = passage and passage.expand(template)
                if value:
                    values.setdefault(placeholder, value)
        return values

    def hold(self, name: str) -> bool:
        """Return whether the text meets a condition or fills a placeholder."""
        return name in self._known or name in self.passages or name in self.placeholders

    def meet(self, condition: str) -> bool:
        """Return whether the text meets a condition of a sign."""
        name = condition.removeprefix("!")
        return self.hold(name) == (name == condition)

    def locate(self, sign: table.Sign) -> Passage | None:
        """Return the first line of the text with a sign."""
        if sign.says:
            return self.transcript.messages.find(sign.says)
        for name, passage in self.passages.items():
            if sign.sees and sign.sees.fullmatch(name):
                return passage
        return None

    def confirm(self, match: Match) -> bool:
        """Return whether a sign is reliable and has no counterevidence."""
        about = match.failure.about
        if about and not all(map(about.search, _NAMED.findall(match.evidence.lower()))):
            return False
        is_of_nvidia = match.failure.group in _OF_NVIDIA
        is_of_other = any(map(self.hold, OTHER_VENDORS))
        if is_of_nvidia and is_of_other and not self.hold("nvidia-card"):
            return False
        last = match.line + match.evidence.count("\n")
        # A later error may have another cause.
        return match.weight >= RELIABLE and all(
            error.line <= last for error in self.transcript.messages.passages(ERROR)
        )

    def fix_context(self, machine: Machine | None) -> FixContext:
        """Create the context that selects fixes, from the text or machine."""
        context = (
            FixContext.of_machine(machine)
            if machine
            else FixContext(own_keys(LINUX, None))
        )
        if any(map(self.hold, (*ORIGINS, "distribution", "native-linux"))):
            context = replace(context, keys=self._keys_told(machine))
        context = replace(
            context,
            is_about=self._is_about,
            is_legacy=self.hold("legacy-gpu"),
            is_for_torch=not self.is_of_another_program,
        )
        if not context.is_for_torch:
            # Without torch, no version determines the toolkit.
            context = context.knowing(cuda="12.9", toolkit="12-9")
        return context.knowing(**self.placeholders)

    def _is_about(self, key: str) -> bool:
        """Return whether a key of a fix is a subject of the text."""
        return key not in ORIGINS and self.hold(key)

    def _keys_told(self, machine: Machine | None) -> tuple[str, ...]:
        """Return the fix keys of the system that the text mentions.

        The distribution and container engine of ``machine`` are the defaults.
        """
        systems = [*filter(self.hold, ORIGINS)]
        # The shell of WSL is Linux's, although the text also mentions Windows.
        if "wsl" in systems and "windows" in systems:
            systems.remove("windows")
        engine = machine.environment.container if machine else None
        if engine and "container" in systems and set(ENGINES).isdisjoint(systems):
            systems.insert(0, engine)
        if not OTHER_SYSTEMS.isdisjoint(systems):
            return tuple(systems)
        distribution = self.placeholders.get(
            "distribution", machine.distribution if machine else None
        )
        return (*systems, *own_keys(LINUX, distribution))

    @property
    def is_of_another_program(self) -> bool:
        """Whether a program that does not use torch printed the text."""
        return self.hold("other-asker") and not self.hold("torch-named")

    def for_program(self, commands: tuple[Hint, ...]) -> tuple[Hint, ...]:
        """Return the commands, or another step if the program lacks torch."""
        if commands or not self.is_of_another_program:
            return commands
        values = {"program": "the program", **self.placeholders}
        return (_ANOTHER_BUILD.format_map(values),)

    def why(self, failure: table.Failure) -> str:
        """Return the description of a cause, with versions from the text."""
        for key, sentence in failure.why.items():
            names = placeholders_in(sentence)
            if self.hold(key) and names <= self.placeholders.keys():
                return sentence.format_map(self.placeholders)
        return failure.cause


def find_matches(
    failures: Mapping[str, table.Failure],
    conditions: Conditions,
) -> list[Match]:
    """Find the failures whose signs a text contains."""
    matches = []
    for failure in failures.values():
        for sign in sorted(failure.signs, key=lambda sign: -sign.weight):
            passage = conditions.locate(sign)
            if (
                passage
                and all(map(conditions.meet, sign.when))
                and not any(map(conditions.hold, failure.unless))
            ):
                matches.append(
                    Match(failure, sign.weight, passage.quotation, passage.line)
                )
                break
    return matches


def known_of(machine: Machine) -> tuple[str, ...]:
    """Return the conditions that hold for a machine."""
    return (*_of_platform(machine), *_of_gpus(machine))


def _of_platform(machine: Machine) -> Iterator[str]:
    """Yield the conditions that follow from a machine's platform."""
    keys = FixContext.of_machine(machine).keys
    places = {"wsl", "container", "jetson", *OTHER_SYSTEMS}.intersection(keys)
    yield from places or {"native-linux"}
    if LINUX in keys and "jetson" not in places and machine.arch in ARM:
        yield "aarch64"
        yield "aarch64-server"


def _of_gpus(machine: Machine) -> Iterator[str]:
    """Yield the conditions that follow from driver, CUDA, and GPUs."""
    driver = machine.driver
    capabilities = sorted(
        filter(None, (gpu.compute_capability for gpu in machine.gpus))
    )
    # If the GPUs have several majors, the newest one does not represent the others.
    is_mixed = len({capability.major for capability in capabilities}) > 1
    known: dict[str, list[tuple[int, ...]]] = {
        "driver": [(driver.version.branch,)] if driver and driver.version else [],
        "cuda": [driver.cuda] if driver and driver.cuda else [],
        "newest": [] if is_mixed else [*capabilities[-1:]],
        "any": [*capabilities],
    }
    for row in table.read_table("conditions")["machine"]:
        low = version_key(row.get("from", "0"))
        high = version_key(row.get("below", "1000"))
        if any(low <= number < high for number in known[row["of"]]):
            yield from row["holds"]
    if is_mixed:
        yield "mixed"
    if any(gpu.mig for gpu in machine.gpus):
        yield "mig"
