"""The classes of machines that are planned for alike, what ``choose`` says of each, and how an answer is found.

The table is embedded in the page, whose script finds answers as it is done here."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate, combinations, groupby, product
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.catalog.gpus import other_chips, products
from gpuinstall.machine import Driver, Environment, Gpu, Machine
from gpuinstall.plan import Plan, Refusal, choose
from gpuinstall.request import Request
from gpuinstall.versions import ComputeCapability, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.drivers import Drivers, Floor
    from gpuinstall.plan.values import Choice, Rejection

DRIVER = "{driver}"
"""Stands for the driver's version in what is said of a machine."""


class Platform(NamedTuple):
    """A system that the page asks for; ``mixed``: also with two kinds of GPUs."""

    key: str
    name: str
    os: str
    arch: str
    wsl: bool = False
    mixed: bool = False

    @property
    def has_windows_driver(self) -> bool:
        """Say whether the driver's number is Windows', as in WSL."""
        return self.wsl or self.os == "windows"


PLATFORMS = (
    Platform("linux", "Linux", "linux", "x86_64", mixed=True),
    Platform("windows", "Windows", "windows", "x86_64", mixed=True),
    Platform("wsl", "Windows with WSL", "linux", "x86_64", wsl=True),
    Platform("linux-arm", "Linux on ARM (Grace, DGX Spark)", "linux", "aarch64"),
    Platform("macos", "macOS", "macos", "arm64"),
)


class Kind(NamedTuple):
    """GPUs that are planned for alike: those of a compute capability, or a chip of a maker that has none.

    ``code`` is the capability or the name of the code that they run, ``name`` their generation or chip; ``os``: they
    are in such machines only.
    """

    code: str
    name: str
    cards: tuple[str, ...]
    capability: ComputeCapability | None = None
    maker: str | None = None
    os: str | None = None

    @property
    def sm(self) -> str:
        """The code as plans name it."""
        return self.capability.sm if self.capability else self.code

    def gpu(self, index: int, name: str) -> Gpu:
        """Make a GPU of this kind."""
        if self.capability:
            return Gpu(index, name, compute_capability=self.capability)
        return Gpu(index, name, vendor=self.maker, architecture=self.code)


Kinds = tuple[Kind, ...]


class DriverRange(NamedTuple):
    """The drivers from one release on, up to the next span: no rule tells them apart."""

    first: tuple[int, ...]
    cuda: str | None

    @property
    def driver(self) -> Driver:
        """The driver that stands for them all; a branch alone would stand for its newest release."""
        parts = self.first if len(self.first) > 1 else (*self.first, 0)
        return Driver(DriverVersion(parts, DRIVER))


def spans_of(platform: Platform, tables: Drivers) -> tuple[DriverRange, ...]:
    """Cut the drivers wherever a table names one."""

    def here(floor: Floor) -> tuple[int, ...]:
        return (floor.windows if platform.has_windows_driver else floor.linux).parts

    branches = [branch for branch, _ in tables.branches]
    ends = [row.last_branch for row in tables.generations if row.last_branch is not None]
    cuts: set[tuple[int, ...]] = {(0,), (branches[-1] + 1,), (tables.partially_supported.last + 1,)}
    cuts |= {(branch,) for branch in branches} | {(last + 1,) for last in ends}
    cuts |= {here(floor) for floor in (*tables.floors.values(), *tables.first_drivers.values())}
    rows = ((cut, tables.branch(DriverVersion(cut, DRIVER))) for cut in sorted(cuts))
    return tuple(DriverRange(cut, str(row[1]) if row else None) for cut, row in rows)


def kinds_of_gpus(catalog: Catalog) -> tuple[Kind, ...]:
    """List the kinds of all products: by capability, the highest first, without Jetsons before Thor; then by chip."""
    kinds = []
    for capability in sorted({card.capability for card in products()} - set(catalog.drivers.tegra), reverse=True):
        generation = catalog.drivers.generation(capability)
        cards = sorted({card.name for card in products() if card.capability == capability})
        kinds.append(Kind(str(capability), generation.name if generation else "", tuple(cards), capability))
    for chip in other_chips():
        name = chip.name if chip.name.startswith(chip.brand) else f"{chip.brand} {chip.name}"
        products_of = chip.products or (chip.architecture,)
        kinds.append(Kind(chip.architecture, name, products_of, maker=chip.maker, os=chip.os))
    return tuple(kinds)


def machine_of_class(platform: Platform, kinds: Iterable[Kind], driver: Driver | None) -> Machine:
    """Make the machine that stands for a class: one GPU of each kind, called ``{0}``, ``{1}``."""
    gpus = tuple(kind.gpu(number, f"{{{number}}}") for number, kind in enumerate(kinds))
    surroundings = Environment(wsl=platform.wsl)
    return Machine(platform.os, platform.arch, environment=surroundings, driver=driver, gpus=gpus)


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
