"""Find the causes of an error message that this machine does not refute."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os.path import isdir
from typing import Any, NamedTuple

from gpuinstall.base.codec import write
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog.failures.classify import (
    ORIGINS,
    Circumstances,
    Match,
    RecognizedCause,
    causes_of,
    find_matches,
    known_of,
    rank,
    requested,
)
from gpuinstall.catalog.failures.table import (
    Failure,
    load_failures,
    load_lookalikes,
)
from gpuinstall.catalog.failures.transcript import Transcript
from gpuinstall.diagnose.predicates import gpu_placeholders, local_fact
from gpuinstall.diagnose.reading import LocalReading
from gpuinstall.wheels.needs import load_libraries

CONFIRMED = 0.95
"""The minimum weight of a cause that this machine confirms."""
_GPU = re.compile(
    r"\b(?:(?:rtx|gtx|radeon rx|arc) ?\w{0,3}\d{3,4}|[abhv][12]00|a10|a40|k80|l4|l40s?|m60|p100|p40|t4|mi[123]\d\d)\b"
)
_MISSING = "missing library"
_FILE = re.compile(r"\blib[\w+-]+\.so(?:\.\d+)*")
_TORCH = re.compile(
    r"(?:pytorch version: |torch\.__version__\W{1,6}|\(you have |\btorch===?|\btorch-)(\d+\.\d+\.\d+)(\+\w+)?"
)
_PLACES = {*ORIGINS} - {"conda"}


class Refuted(Value):
    """Cause of an error that facts about this machine refute."""

    id: str
    title: str
    fact: str


class Explanation(Value):
    """Causes of an error message, most likely first, and similar errors."""

    causes: tuple[RecognizedCause, ...]
    refuted: tuple[Refuted, ...]
    confirmed: Mapping[str, str]
    """The facts that confirm causes, by failure ID."""
    lookalikes: tuple[RecognizedCause, ...]
    reading: LocalReading
    is_elsewhere: bool
    """Whether the text mentions another GPU, torch, or platform."""
    unread: int
    """The number of lines of the text that were not read."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document of the explanation."""
        return {
            "causes": write(self.causes),
            "refuted": write(self.refuted),
            "confirmed": write(self.confirmed),
            "lookalikes": write(self.lookalikes),
            "here": self._here(),
        }

    def _here(self) -> dict[str, Any]:
        reading = self.reading
        torch, driver = reading.torch, reading.machine.driver
        return {
            "environment": str(reading.venv) if isdir(reading.venv) else None,
            "torch": torch and torch.version,
            "architectures": list(torch.build.code) if torch and torch.build else [],
            "driver": str(driver.version) if driver and driver.version else None,
            "gpus": [
                {"name": gpu.label, "architecture": gpu.code_name}
                for gpu in reading.machine.gpus
            ],
            "libraries": dict(reading.libraries),
            "is_elsewhere": self.is_elsewhere,
        }


def explain_text(
    text: str,
    reading: LocalReading,
    placeholders: Mapping[str, str] | None = None,
) -> Explanation:
    """Find the causes of an error message, and check them on this machine.

    Args:
        text: The error message, or a log that contains it.
        reading: This machine and an environment.
        placeholders: The values of placeholders in commands.
    """
    transcript = Transcript(text)
    circumstances = Circumstances(transcript)
    comparison = Comparison(requested(transcript))
    is_elsewhere = False
    if not comparison.left:
        reading = _with_libraries(circumstances, reading)
        is_elsewhere = _is_elsewhere(circumstances, reading)
        if not is_elsewhere:
            circumstances = Circumstances(transcript, _known(reading))
        comparison = Comparison(find_matches(load_failures(), circumstances))
        if not is_elsewhere:
            comparison = _compare(comparison.left, reading)
    machine = reading.machine
    causes = rank(comparison.left)
    words = {**(placeholders or {})}
    if causes:
        words |= library_placeholders(causes[0], circumstances, words)
    if not is_elsewhere:
        words |= gpu_placeholders(reading)
    lookalikes = find_matches(load_lookalikes(), circumstances)
    found = causes_of(causes, circumstances, machine, words, others=lookalikes)
    if comparison.confirmed:
        found = _with_local_fixes(found, circumstances, reading)
    return Explanation(
        found,
        comparison.refuted,
        comparison.confirmed,
        causes_of(lookalikes, circumstances, machine, words, others=causes),
        reading,
        is_elsewhere,
        transcript.unread,
    )


def library_placeholders(
    match: Match, circumstances: Circumstances, known: Mapping[str, str]
) -> dict[str, str]:
    """Return the package of the CUDA library in a message.

    Args:
        match: The failure with the message.
        circumstances: The circumstances of the text.
        known: The values of placeholders for the environment.
    """
    values = circumstances.placeholders
    closest = Circumstances(match.evidence).placeholders_of(True)
    library = closest.get("library") or values.get("library", "")
    libraries = load_libraries()
    # cublas64_13.dll is libcublas on Linux.
    row = libraries.row(re.sub(r"^(?:lib)?([a-z]\w*?)(64_|\.).*", r"lib\1", library))
    if row is None:
        return {}
    of_environment = known.get("cuda", "").partition(".")[0]
    major = libraries.cuda(library) or int(
        values.get("cuda-major") or of_environment or 0
    )
    package = row.package_for(major or None)
    if package is None:
        package = row.package.format(cuda="<CUDA major>")
    version = re.search(r"cudnn\w*(?:\.so\.|64_)(\d)", library)
    return {"package": f"'{package}=={version[1]}.*'" if version else package}


def _with_libraries(
    circumstances: Circumstances, reading: LocalReading
) -> LocalReading:
    """Add the local paths of libraries that the text reports as missing."""
    names = set[str]()
    for observation in circumstances.observations:
        if observation.name.startswith(_MISSING):
            names.update(_FILE.findall(observation.quotation))
    paths = {name: reading.find_library(name) for name in sorted(names)}
    return replace(reading, libraries=paths)


def _is_elsewhere(circumstances: Circumstances, reading: LocalReading) -> bool:
    """Return whether a text mentions another torch, GPU, or platform."""
    machine, torch = reading.machine, reading.torch
    text = "\n".join(circumstances.transcript.lines).lower()
    versions = set(_TORCH.findall(text))
    if torch and versions:
        version, _, label = torch.version.partition("+")
        # A version without a local label matches any build.
        if versions.isdisjoint({(version, ""), (version, f"+{label}")}):
            return True
    gpus = set(_GPU.findall(text))
    names = " ".join(gpu.label for gpu in machine.gpus).lower()
    if gpus and not any(gpu in names for gpu in gpus):
        return True
    places = {*known_of(machine), machine.environment.container or ""}
    return any(circumstances.hold(place) for place in _PLACES - places)


def _known(reading: LocalReading) -> list[str]:
    """Return the conditions of failures that are true on this machine."""
    known = [*known_of(reading.machine)]
    major = reading.torch and (reading.torch.backend.version or "").partition(".")[0]
    if reading.environ.get("HSA_OVERRIDE_GFX_VERSION"):
        known.append("gfx-override")
    if reading.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
        known.append("devices-hidden")
    for name in reading.libraries:
        found = load_libraries().cuda(name)
        if major and found:
            is_same = str(found) == major
            known.append("same-cuda-major" if is_same else "other-cuda-major")
    return known


def _find_causes(failure: Failure, reading: LocalReading) -> list[str]:
    """Return the faults of this machine that have a failure as consequence."""
    return [
        problem.id
        for problem in reading.machine.problems
        if problem.blocking
        and problem.id
        and failure.id in load_failures()[problem.id].consequences
    ]


def _with_local_fixes(
    causes: Sequence[RecognizedCause],
    circumstances: Circumstances,
    reading: LocalReading,
) -> tuple[RecognizedCause, ...]:
    """Use the fixes of this machine's faults, if the text selects none."""
    fixes = {
        problem.id: tuple(map(str, problem.fixes))
        for problem in reversed(reading.machine.problems)
        if problem.blocking
    }
    return tuple(
        replace(cause, fix=fixes[cause.id])
        if cause.id in fixes and not circumstances.selects_fix(cause.id)
        else cause
        for cause in causes
    )


class Comparison(NamedTuple):
    """Failures that match a text, after a comparison with this machine."""

    left: Sequence[Match]
    refuted: tuple[Refuted, ...] = ()
    confirmed: Mapping[str, str] = {}


def _compare(matches: Sequence[Match], reading: LocalReading) -> Comparison:
    """Remove failures that this machine refutes, and prefer confirmed ones."""
    left = []
    deciding = []
    refuted = []
    confirmed = {}
    for match in matches:
        failure = match.failure
        fact = local_fact(failure, reading)
        if fact is None:
            left.append(match)
        elif fact.holds:
            confirmed[failure.id] = fact.message
            deciding.append(match._replace(weight=max(match.weight, CONFIRMED)))
        else:
            refuted.append(Refuted(failure.id, failure.title, fact.message))
    # If the text shows only symptoms or consequences, report the faults of this machine that cause them.
    if not deciding:
        for match in [one for one in left if not one.failure.is_symptom] or left:
            for entry in match.failure.narrows or _find_causes(match.failure, reading):
                cause = match._replace(failure=load_failures()[entry])
                fact = local_fact(cause.failure, reading)
                if fact and fact.holds and entry not in confirmed:
                    confirmed[entry] = fact.message
                    deciding.append(cause)
    return Comparison(deciding or left, tuple(refuted), confirmed)
