"""What ``choose`` says of every class of machines, each different answer kept once, and how an answer is found.

The table is embedded in the page, whose script finds answers as it is done here."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate, combinations, groupby, product
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.page.classes import DriverRange, Kind, Platform, kinds_of_gpus, machine_of_class, spans_of
from gpuinstall.plan import Plan, Refusal, choose
from gpuinstall.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.plan.values import Choice, Rejection

    Kinds = tuple[Kind, ...]

WIDTH = 3
"""Digits of a packed number: three of base 36."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Answer(NamedTuple):
    """An answer, its texts still with their placeholders; ``notes`` are warnings, or what to do where it is refused."""

    outcome: tuple[str, ...]
    build: tuple[str, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    passed_over: tuple[str, ...]


class Table(NamedTuple):
    """The embedded document."""

    body: Mapping[str, Any]

    def platform(self, key: str) -> Mapping[str, Any]:
        """Find a platform by its key."""
        platform: Mapping[str, Any] = next(row for row in self.body["platforms"] if row["key"] == key)
        return platform

    def answer(
        self, key: str, kinds: Sequence[int], driver: Sequence[float] | None, python: int = 0, packages: int = 0
    ) -> Answer | None:
        """Find the answer for kinds of GPUs under a driver (None: without one); None for what was not asked.

        A driver is its numbers; a branch named alone is its newest release. GPUs of other makers than NVIDIA have no
        rows by driver. The rest are positions in their lists.
        """
        platform, wanted = self.platform(key), ",".join(map(str, sorted(set(kinds))))
        if not platform["spans"]:
            number = platform["without"].get(wanted, platform["without"][""])
        elif driver is None or wanted not in platform["rows"]:
            number = platform["without"].get(wanted)
        else:
            newest = (*driver, float("inf")) if len(driver) == 1 else tuple(driver)
            span, runs = bisect_right(platform["spans"], newest, key=tuple) - 1, platform["rows"][wanted]
            number = runs[bisect_right([*accumulate(count for _, count in runs)], span)][0]
        if number is None:
            return None
        answers = unpack_numbers(self.body["classes"][number])
        position = python * len(self.body["packages"]) + packages
        if position >= len(answers):
            return None
        parts = unpack_numbers(self.body["answers"][answers[position]])
        return Answer(*(tuple(self.body["texts"][text] for text in self.body["parts"][part]) for part in parts))


def packed(numbers: Iterable[int]) -> str:
    """Write numbers side by side."""
    return "".join(
        _DIGITS[number // 36**2] + _DIGITS[number // 36 % 36] + _DIGITS[number % 36] for number in numbers
    )  # fmt: skip


def unpack_numbers(text: str) -> list[int]:
    """Read numbers that stand side by side."""
    return [int(text[start : start + WIDTH], 36) for start in range(0, len(text), WIDTH)]


PACKAGES = (("torch",), ("torch", "torchvision"), ("torch", "torchvision", "torchaudio"))
_SHOWN_REJECTIONS = 4  # more would make the page larger, and ``plan --all`` shows them
_INDICES = re.compile(r"(--gpus |GPU )([01])\b")
_ITS_CUDA = re.compile(r"(?<=driver's CUDA )\d+\.\d+")


class Answers:
    """The answers for some platforms; texts, parts and answers are called by their numbers."""

    def __init__(self, catalog: Catalog, platforms: Sequence[Platform]) -> None:
        self.catalog = catalog
        self.platforms = platforms
        self.pythons = (None, *_pythons(catalog))
        self._texts: dict[str, int] = {}
        self._parts: dict[tuple[int, ...], int] = {}
        self._answers: dict[tuple[int, ...], int] = {}
        self._classes: dict[tuple[Any, ...], int] = {}
        self._rows: list[list[int]] = []

    def table(self) -> dict[str, Any]:
        """Ask for all classes; return the table as the page embeds it."""
        kinds = kinds_of_gpus(self.catalog)
        platforms = [self._platform(platform, kinds) for platform in self.platforms]
        return {
            "date": self.catalog.date,
            "branches": [branch for branch, _ in self.catalog.drivers.branches],
            "kinds": [kind.code for kind in kinds],
            "homes": {number: kind.os for number, kind in enumerate(kinds) if kind.os},
            "pythons": self.pythons,
            "packages": PACKAGES,
            "platforms": platforms,
            "classes": [packed(row) for row in self._rows],
            "answers": [packed(answer) for answer in self._answers],
            "parts": list(self._parts),
            "texts": list(self._texts),
        }

    def _platform(self, platform: Platform, kinds: Kinds) -> dict[str, Any]:
        spans = () if platform.os == "macos" else spans_of(platform, self.catalog.drivers)
        without = {"": self._class(platform, (), None)}
        rows = {}
        driven = tuple(kind for kind in kinds if kind.capability)
        for number, kind in enumerate(kinds):
            if spans or not kind.capability:
                without[str(number)] = self._class(platform, (kind,), None)
            if kind.capability and spans:
                rows[str(number)] = [self._class(platform, (kind,), span) for span in spans]
        if platform.mixed:
            rows |= self._mixed(platform, driven, spans, rows)
            for first, second in combinations(range(len(driven)), 2):
                without[f"{first},{second}"] = self._class(platform, (driven[first], driven[second]), None)
        return {
            "key": platform.key,
            "name": platform.name,
            "windows": platform.has_windows_driver,
            "spans": [span.first for span in spans],
            "cuda": [span.cuda for span in spans],
            "without": without,
            "rows": {key: [[number, len([*run])] for number, run in groupby(row)] for key, row in rows.items()},
        }

    def _mixed(
        self, platform: Platform, kinds: Kinds, spans: Sequence[DriverRange], alone: dict[str, list[int]]
    ) -> dict[str, list[int]]:
        """Ask for two kinds together, once for all drivers that neither tells apart."""
        rows = {}
        for first, second in combinations(range(len(kinds)), 2):
            sides = list(zip(alone[str(first)], alone[str(second)], strict=True))
            first_span = dict(zip(reversed(sides), reversed(spans), strict=True))
            pair = kinds[first], kinds[second]
            classes = {side: self._class(platform, pair, span) for side, span in first_span.items()}
            rows[f"{first},{second}"] = [classes[side] for side in sides]
        return rows

    def _class(self, platform: Platform, kinds: Kinds, span: DriverRange | None) -> int:
        """Find the class of a machine: those of one have the same plan, whatever driver it names."""
        machine = machine_of_class(platform, kinds, span and span.driver)
        plan = choose(machine, Request(), self.catalog)
        chip = next((kind.code for kind in kinds if not kind.capability), None)
        key = (platform.key, len(kinds) > 1, *_essence(plan, chip))
        if key not in self._classes:
            self._classes[key] = len(self._rows)
            self._rows.append([])
            pythons = self.pythons if len(kinds) < 2 else (None,)  # for two kinds of GPUs it is left open
            requests = (Request(packages, python=python) for python, packages in product(pythons, PACKAGES))
            answers = [self._answer(choose(machine, request, self.catalog), chip) for request in requests]
            self._rows[self._classes[key]] = answers
        return self._classes[key]

    def _answer(self, plan: Plan | Refusal, chip: str | None) -> int:
        """Keep an answer; of what was passed over, the newest build for each reason there is."""
        notes = [warning.message for warning in plan.warnings] if plan.choice else (plan.fix or "").splitlines()
        newest: dict[str, Rejection] = {}
        for rejection in plan.rejected:
            newest.setdefault(rejection.code, rejection)
        passed_over = list(newest.values())[:_SHOWN_REJECTIONS]
        parts = (
            (plan.status, str(plan.exit_code), *(f"{run.how} {run.runs}" for run in plan.gpus)),
            self._build(plan.choice) if plan.choice else (),
            tuple(text for reason in plan.reasons for text in reason),
            notes,
            tuple(text for rejection in passed_over for text in (rejection.build.name, rejection.message)),
        )
        texts = self._texts
        kept = (tuple(texts.setdefault(_for_all(text, chip), len(texts)) for text in part) for part in parts)
        answer = tuple(self._parts.setdefault(part, len(self._parts)) for part in kept)
        return self._answers.setdefault(answer, len(self._answers))

    def _build(self, choice: Choice) -> tuple[str, ...]:
        build = choice.build
        evidence = self.catalog.serving(build.backend.kind).evidence
        sources = "; ".join(f"{source} ({date})" for source, date in (evidence[key] for key in build.evidence))
        trust = f"learned on {build.learned}" if build.learned else build.confidence
        names = str(build.torch), str(build.backend), choice.index or "", choice.python
        return (*names, sources, trust, *choice.requirements)


def _pythons(catalog: Catalog) -> list[str]:
    """The Pythons of the newest torch; for others there is ``gpuinstall plan --python``."""
    newest = max(catalog.releases)
    builds = (build for build in catalog.builds if build.torch == newest)
    pythons = {python for build in builds for python in build.pythons if not python.endswith("t")}
    return sorted(pythons, key=lambda python: int(python.partition(".")[2]))


def _essence(plan: Plan | Refusal, chip: str | None) -> tuple[Any, ...]:
    """What makes two machines one class, for every request: the judgement of each build, and all that is said."""
    return (
        plan.status,
        plan.exit_code,
        plan.choice and plan.choice.build.name,
        tuple(build.name for build in plan.runnable),
        tuple(_for_all(f"{run.how} {run.runs}", chip) for run in plan.gpus),
        tuple((row.build.name, row.code, _for_all(row.message, chip)) for row in plan.rejected),
        tuple(_for_all(reason.message, chip) for reason in (*plan.reasons, *plan.warnings)),
        plan.fix,
    )


def _for_all(text: str, chip: str | None) -> str:
    """Write what is said of one machine for all of its class: the GPUs' numbers, the driver's CUDA, the chip's code."""
    general = _ITS_CUDA.sub("{cuda}", _INDICES.sub(r"\1{#\2}", text))
    return re.sub(rf"\b{re.escape(chip)}(?![\w.])", "{chip}", general) if chip else general
