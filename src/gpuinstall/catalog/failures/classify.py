"""Find the possible causes of an error message, the likeliest first. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

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
LEAST_WEIGHT = 0.25
LEAST_ODDS = 0.1
"""The minimum odds of a reported cause, relative to the likeliest."""
CONSEQUENCE_DISCOUNT = 0.6
"""The factor for the weight of a failure that is a consequence of another."""
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
_OF_TORCH = re.compile(
    r"gpuinstall install( --(python|venv|backend|gpus) \S+| --[\w-]+)*( *#|$)|\btorch\b|TORCH_"
)
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
_NUMBER = re.compile(r"(?:.*\[F|F?)(?P<number>\d{1,4})\]?", re.IGNORECASE)


class RecognizedCause(Value):
    """A failure that an error message or log indicates."""

    id: str
    title: str
    why: str
    is_certain: bool
    """Whether the message states the cause, without counterevidence."""
    evidence: str
    """The lines of the text that indicate the failure."""
    fix: tuple[str, ...]


class Observation(NamedTuple):
    """A fact that one line of a text shows, such as a missing library."""

    name: str
    """The kind and subject: ``missing library cuda/cudnn``, ``cuda 802``."""
    line: int
    """The line number in the text, from 1."""
    quotation: str
    """The line of the text."""


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
    *,
    here: Machine | None = None,
) -> tuple[RecognizedCause, ...]:
    """Return the possible causes of an error message, likeliest first.

    Args:
        text: The text, or the ID of a failure.
        machine: The machine that printed the text, if known.
        here: The machine of the user, if ``machine`` is unknown. It affects only the
            commands of fixes.
    """
    circumstances = Circumstances(text, known_of(machine) if machine else ())
    matches = requested(circumstances.transcript)
    if not matches:
        matches = rank(find_matches(table.load_failures(), circumstances))
    return causes_of(matches, circumstances, machine or here)


def requested(transcript: Transcript) -> list[Match]:
    """Return the failure whose ID is the whole text, if any."""
    number = _NUMBER.fullmatch("\n".join(transcript.lines).strip())
    failures = table.load_failures()
    entry = f"F{number['number']:0>2}" if number else ""
    if entry not in failures:
        return []
    return [Match(failures[entry], weight=1.0, evidence="", line=1)]


def rank(matches: Sequence[Match]) -> list[Match]:
    """Select the likely causes among the matches, likeliest first.

    Symptoms are included only if there is no other cause. A consequence of another
    cause has a lower weight.
    """
    causes = [match for match in matches if not match.failure.is_symptom] or matches
    consequences = {one for match in causes for one in match.failure.consequences}
    weighed = []
    for match in causes:
        weight = match.weight
        if match.failure.id in consequences:
            weight *= CONSEQUENCE_DISCOUNT
        if weight >= LEAST_WEIGHT:
            weighed.append(match._replace(weight=weight))
    weighed.sort(key=lambda match: (-match.weight, match.line))
    return [one for one in weighed if _odds(one) >= LEAST_ODDS * _odds(weighed[0])]


def _odds(match: Match) -> float:
    return match.weight / max(1 - match.weight, 0.01)


def causes_of(
    matches: Sequence[Match],
    circumstances: Circumstances,
    machine: Machine | None,
    placeholders: Mapping[str, str] | None = None,
    *,
    others: Sequence[Match] = (),
) -> tuple[RecognizedCause, ...]:
    """Return the recognized causes with fixes for one machine.

    Args:
        matches: The failures.
        circumstances: The circumstances of the text.
        machine: The machine whose commands are selected, if known.
        placeholders: The values of placeholders for the environment.
        others: Other possible causes. If there are any, no cause is certain.
    """
    if not matches:
        return ()
    context = circumstances.fix_context(machine)
    context = replace(context, is_legacy=circumstances.hold("legacy-gpu"))
    words = placeholders or {}
    python = circumstances.placeholders.get("python", words.get("python"))
    # The text is about another environment.
    if python != words.get("python"):
        words = {name: words[name] for name in words.keys() - _OF_ENVIRONMENT}
    is_only = len(matches) == 1 and not others
    is_certain = is_only and circumstances.confirm(matches[0])
    causes = []
    for match in matches[:MAX_CAUSES]:
        failure = match.failure
        # Prefer placeholders from the lines that show the failure.
        closest = Circumstances(match.evidence).placeholders_of(True)
        commands = fix(failure.id, context.knowing(**closest).knowing(**words))
        cause = RecognizedCause(
            failure.id,
            failure.title,
            circumstances.why(failure),
            is_certain=is_certain,
            evidence=match.evidence,
            fix=circumstances.for_program(commands),
        )
        causes.append(cause)
    return tuple(causes)


class Circumstances:
    """The circumstances that hold for a text, evaluated when needed."""

    def __init__(self, text: str | Transcript, known: Iterable[str] = ()) -> None:
        self.transcript = text if isinstance(text, Transcript) else Transcript(text)
        self._known = dict.fromkeys(known, True)

    @cached_property
    def observations(self) -> list[Observation]:
        """The observations in the lines of the text."""
        found: dict[tuple[int, str], Observation] = {}
        for kind in table.load_kinds():
            for pattern in kind.says:
                for passage in self.transcript.messages.passages(pattern):
                    name = kind.name_of(passage.match)
                    seen = Observation(name, passage.line, passage.quotation)
                    found.setdefault((passage.line, name), seen)
        return sorted(found.values(), key=lambda seen: seen.line)

    def hold(self, name: str) -> bool:
        """Return whether a circumstance or observation holds for the text."""
        if name not in self._known:
            self._known[name] = self._is_shown(name)
        return self._known[name]

    def meet(self, condition: str) -> bool:
        """Return whether the text meets a condition of a sign."""
        name = condition.removeprefix("!")
        return self.hold(name) == (name == condition)

    def _is_shown(self, name: str) -> bool:
        patterns = table.load_circumstances().get(name)
        if patterns is None:
            return any(observation.name == name for observation in self.observations)
        return any(map(self.transcript.find, patterns))

    def locate(self, sign: table.Sign) -> Passage | Observation | None:
        """Return the first line of the text with a sign."""
        if sign.says:
            return self.transcript.messages.find(sign.says)
        if sign.runs:
            return self.transcript.find(sign.runs)
        for observation in self.observations:
            if sign.sees and sign.sees.fullmatch(observation.name):
                return observation
        return None

    def confirm(self, match: Match) -> bool:
        """Return whether a sign is reliable and has no counterevidence."""
        about = match.failure.about
        named = _NAMED.findall(match.evidence.lower())
        if about and not all(map(about.search, named)):
            return False
        is_of_nvidia = match.failure.group in _OF_NVIDIA
        is_of_other = any(map(self.hold, OTHER_VENDORS))
        if is_of_nvidia and is_of_other and not self.hold("nvidia-card"):
            return False
        last = match.line + match.evidence.count("\n")
        # A later error may have another cause.
        errors = self.transcript.messages.passages(ERROR)
        is_last = all(error.line <= last for error in errors)
        return is_last and match.weight >= RELIABLE

    def fix_context(self, machine: Machine | None) -> FixContext:
        """Create the context that selects fixes, from the text or machine."""
        context = (
            FixContext.of_machine(machine)
            if machine
            else FixContext(own_keys(LINUX, None))
        )
        systems = [name for name in ORIGINS if self.hold(name)]
        if systems or "distribution" in self.placeholders or self.hold("native-linux"):
            context = replace(context, keys=self._keys_told(systems, machine))
        context = replace(context, is_about=self._is_about)
        if self.is_of_another_program:
            # Without torch, no version determines the toolkit.
            context = context.knowing(cuda="12.9", toolkit="12-9")
        return context.knowing(**self.placeholders)

    def selects_fix(self, entry: str) -> bool:
        """Return whether the text selects a more specific fix of a failure."""
        return any(map(self._is_about, table.load_failures()[entry].fix.commands))

    def _is_about(self, key: str) -> bool:
        """Return whether a key of a fix is a subject of the text."""
        if key in ORIGINS:
            return False
        # If a circumstance and a placeholder have the same name, the circumstance decides.
        is_told = key in self.placeholders and key not in table.load_circumstances()
        return is_told or self.hold(key)

    def _keys_told(
        self, systems: list[str], machine: Machine | None
    ) -> tuple[str, ...]:
        """Return the fix keys of the system that the text mentions.

        The distribution and container engine of ``machine`` are the defaults.
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
        """Whether a program that does not use torch printed the text."""
        return self.hold("other-asker") and not self.hold("torch")

    def for_program(self, commands: tuple[str, ...]) -> tuple[str, ...]:
        """Remove commands that install torch if the program lacks it."""
        if not self.is_of_another_program:
            return commands
        program = self.placeholders.get("program", "the program")
        lines = [line for line in commands if not _OF_TORCH.search(line)]
        return tuple(lines) or (_ANOTHER_BUILD.format(program=program),)

    def why(self, failure: table.Failure) -> str:
        """Return the description of a cause, with versions from the text."""
        for key, sentence in failure.why.items():
            is_told = key in self.placeholders or self.hold(key)
            if is_told and placeholders_in(sentence) <= self.placeholders.keys():
                return sentence.format_map(self.placeholders)
        return failure.cause

    @cached_property
    def placeholders(self) -> dict[str, str]:
        """The values in the text for placeholders of fixes."""
        return self.placeholders_of(False)

    def placeholders_of(self, line: bool) -> dict[str, str]:
        """Return the values of placeholders, from a line or from the text."""
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


def find_matches(
    failures: Mapping[str, table.Failure],
    circumstances: Circumstances,
) -> list[Match]:
    """Find the failures whose signs a text contains."""
    matches = []
    for failure in failures.values():
        for sign in sorted(failure.signs, key=lambda sign: -sign.weight):
            passage = circumstances.locate(sign)
            if (
                passage
                and all(map(circumstances.meet, sign.when))
                and not any(map(circumstances.hold, failure.unless))
            ):
                line, quotation = passage.line, passage.quotation
                matches.append(Match(failure, sign.weight, quotation, line))
                break
    return matches


def known_of(machine: Machine) -> tuple[str, ...]:
    """Return the circumstances that hold for a machine."""
    return (*_of_platform(machine), *_of_gpus(machine))


def _of_platform(machine: Machine) -> Iterator[str]:
    """Yield the circumstances that follow from a machine's platform."""
    keys = FixContext.of_machine(machine).keys
    places = {"wsl", "container", "jetson", *OTHER_SYSTEMS}.intersection(keys)
    yield from places or {"native-linux"}
    if LINUX in keys and "jetson" not in places and machine.arch in ARM:
        yield "aarch64"
        yield "aarch64-server"


def _of_gpus(machine: Machine) -> Iterator[str]:
    """Yield the circumstances that follow from driver, CUDA, and GPUs."""
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
    for row in table.read_table("circumstances")["machine"]:
        low = version_key(row.get("from", "0"))
        high = version_key(row.get("below", "1000"))
        if any(low <= number < high for number in known[row["of"]]):
            yield from row["holds"]
    if is_mixed:
        yield "mixed"
    if any(gpu.mig for gpu in machine.gpus):
        yield "mig"
