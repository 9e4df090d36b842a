"""What ``choose`` answers for each kind of GPU, on each platform, from each driver on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.advice import in_full
from gpuinstall.catalog.gpus import other_chips, products
from gpuinstall.machine import Driver, Environment, Gpu, Machine
from gpuinstall.plan import Rejected, choose
from gpuinstall.request import Request
from gpuinstall.versions import ComputeCapability, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.plan import Plan

PACKAGES = (("torch", "torchvision"), ("torch", "torchvision", "torchaudio"))
"""The requests of the page; nearly everyone installs torchvision too, and each torch has one.

page.js relies on torch as the first.
"""
CARD = "{card}"
"""Stands for the card's name in a text; page.js fills it in, by this name."""
DRIVER = "{driver}"
"""Stands for the driver's version. Without it, equal answers for two drivers would differ in their text."""
OLDEST = 0
"""A branch before every driver."""


class Platform(NamedTuple):
    """A system that the page asks for."""

    key: str
    """The word for it in the page's address. That of macOS is ``Kind.os`` too: page.js compares them."""
    name: str
    os: str
    arch: str
    wsl: bool = False

    @property
    def has_windows_driver(self) -> bool:
        """Whether the driver's number is that of Windows, as in WSL."""
        return self.wsl or self.os == "windows"


PLATFORMS = (
    Platform("linux", "Linux", "linux", "x86_64"),
    Platform("windows", "Windows", "windows", "x86_64"),
    Platform("wsl", "Windows with WSL", "linux", "x86_64", wsl=True),
    Platform("linux-arm", "Linux on ARM (Grace, DGX Spark)", "linux", "aarch64"),
    Platform("macos", "macOS", "macos", "arm64"),
)


class Kind(NamedTuple):
    """GPUs with the same answers: those of a compute capability, or a chip of another maker."""

    code: str
    """The name of the code that they run, such as ``sm_89``; empty for no GPU at all."""
    cards: tuple[str, ...]
    capability: ComputeCapability | None = None
    maker: str | None = None
    os: str | None = None
    """The only system that has them."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """One GPU of this kind, whose name is a placeholder."""
        if self.capability:
            return (Gpu(0, CARD, compute_capability=self.capability),)
        if self.maker:
            gpu = Gpu(
                0,
                CARD,
                vendor=self.maker,
                architecture=self.code,
            )
            return (gpu,)
        return ()


class Answer(NamedTuple):
    """What the page shows for a plan, with placeholders for the card and the driver."""

    title: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    """Warnings, or what to do if no build fits."""
    python: str = ""
    index_url: str = ""
    requirements: tuple[str, ...] = ()
    """The exact versions to install; page.js takes none for a rejection."""
    source: str = ""


DriverParts = tuple[int, ...]
Answers = tuple[Answer, ...]
"""One answer for each of ``PACKAGES``."""
DriverRanges = list[tuple[DriverParts | None, Answers]]
"""The first driver of each range of drivers with the same answers, ascending; None if no driver matters."""


def page_data(catalog: Catalog, platforms: Sequence[Platform] = PLATFORMS) -> dict[str, Any]:
    """Return the document that the page embeds and page.js reads.

    An answer stands once, in ``answers``; elsewhere its position there stands for it. A platform has for each kind the
    ranges of drivers with one answer for each of ``packages``: the first driver, and the answers from there on::

        {"packages": [["torch", "torchvision"], ["torch", "torchvision", "torchaudio"]],
         "kinds": [{"code": "sm_89", "cards": ["RTX 4090"], "os": null}],
         "platforms": [{"key": "linux", "name": "Linux", "ranges": [[[[0, 0], [0, 1]], [[525, 0], [2, 3]]]]}],
         "answers": [{"title": "No build fits", "reasons": []}]}
    """
    kinds = kinds_of_gpus(catalog)
    positions: dict[Answer, int] = {}
    platform_rows = []
    for platform in platforms:
        # Each kind on each platform, also if it cannot be there: page.js finds it by its position.
        ranges_by_kind = []
        for kind in kinds:
            ranges = answers_by_driver(platform, kind, catalog)
            ranges_by_kind.append(_with_positions(ranges, positions))
        platform_rows.append(
            {
                "key": platform.key,
                "name": platform.name,
                "ranges": ranges_by_kind,
            }
        )
    return {
        "packages": PACKAGES,
        "kinds": [
            {
                "code": kind.code,
                "cards": kind.cards,
                "os": kind.os,
            }
            for kind in kinds
        ],
        "platforms": platform_rows,
        "answers": [answer._asdict() for answer in positions],
    }


def _with_positions(
    ranges: DriverRanges,
    positions: dict[Answer, int],
) -> list[tuple[DriverParts | None, list[int]]]:
    """Return ranges with the position of each answer; a new answer gets the next one."""
    rows = []
    for first_driver, answers in ranges:
        numbers = [positions.setdefault(answer, len(positions)) for answer in answers]
        rows.append((first_driver, numbers))
    return rows


def kinds_of_gpus(catalog: Catalog) -> tuple[Kind, ...]:
    """Return every kind: by capability, the highest first; by chip; and no GPU."""
    # What runs on these depends on their system (JetPack), which the page does not ask for.
    older_jetsons = catalog.drivers.tegra
    names: dict[ComputeCapability, set[str]] = {}
    for product in products():
        if product.capability not in older_jetsons:
            names.setdefault(product.capability, set()).add(product.name)
    kinds = []
    for capability in sorted(names, reverse=True):
        cards = tuple(sorted(names[capability]))
        kinds.append(Kind(capability.sm, cards, capability))
    for chip in other_chips():
        cards = chip.products or (chip.architecture,)
        kind = Kind(
            chip.architecture,
            cards,
            maker=chip.maker,
            os=chip.os,
        )
        kinds.append(kind)
    return (*kinds, Kind("", ("No GPU",)))


def answers_by_driver(
    platform: Platform,
    kind: Kind,
    catalog: Catalog,
) -> DriverRanges:
    """Return the answers for one GPU of a kind, each with the first driver that has them."""

    def answers_for(driver: Driver | None) -> Answers:
        machine = Machine(
            platform.os,
            platform.arch,
            environment=Environment(wsl=platform.wsl),
            driver=driver,
            gpus=kind.gpus,
        )
        answers = []
        for packages in PACKAGES:
            plan = choose(machine, Request(packages), catalog)
            command = f"gpuinstall install {' '.join(packages)}"
            answers.append(answer_of(plan, command, catalog))
        return tuple(answers)

    # Only NVIDIA's kinds have a capability, and macOS has no NVIDIA driver to ask for.
    if kind.capability is None or platform.os == "macos":
        return [(None, answers_for(None))]
    borders = driver_borders(platform, catalog)
    return changes(borders, lambda border: answers_for(Driver(DriverVersion(border, DRIVER))))


def driver_borders(platform: Platform, catalog: Catalog) -> list[DriverParts]:
    """Return the first drivers of which a rule may judge otherwise than of older ones, ascending."""
    tables = catalog.drivers
    borders = set()
    for floor in (*tables.floors.values(), *tables.first_drivers.values()):
        version = floor.windows if platform.has_windows_driver else floor.linux
        borders.add(version.parts)
    branches = [branch for branch, _ in tables.branches]
    newest = branches[-1]
    ended = [row.last_branch for row in tables.generations if row.last_branch is not None]
    # One past the last branch with some support, and past the newest one known: the first without it.
    branches += [branch + 1 for branch in (*ended, tables.partially_supported.last, newest)]
    # (branch, 0), because (branch,) means the branch's newest release.
    borders.update((branch, 0) for branch in (OLDEST, *branches))
    return sorted(borders)


def changes(
    borders: Sequence[DriverParts],
    ask: Callable[[DriverParts], Answers],
) -> DriverRanges:
    """Return the borders at which the answer changes, with the answer from there on.

    Each answer holds for one unbroken run of drivers (A A B B, never A B A), since newer drivers bring newer builds
    until one drops the chip. So equal ends mean an equal middle, which is not asked; a test asks at each border.
    """
    answers = {border: ask(border) for border in (borders[0], borders[-1])}
    to_halve = [(0, len(borders) - 1)]
    while to_halve:
        first, last = to_halve.pop()
        middle = (first + last) // 2
        if middle > first and answers[borders[first]] != answers[borders[last]]:
            answers[borders[middle]] = ask(borders[middle])
            to_halve += [(first, middle), (middle, last)]
    ranges: DriverRanges = []
    for border in sorted(answers):
        if not ranges or ranges[-1][1] != answers[border]:
            ranges.append((border, answers[border]))
    return ranges


def answer_of(
    plan: Plan | Rejected,
    command: str,
    catalog: Catalog,
) -> Answer:
    """Return what the page shows for a plan.

    Args:
        command: The one that makes the plan, which a fix of ``the same with …`` is written out as.
    """
    # Several reasons can share a message: the first counts.
    reasons = tuple(dict.fromkeys(reason.message for reason in plan.reasons))
    if isinstance(plan, Rejected):
        fixes = in_full(plan.fix or "", command.split())
        return Answer(
            "No build fits",
            reasons,
            notes=tuple(fixes.splitlines()),
        )
    build = plan.choice.build
    sources_by_key = catalog.serving(build.backend.kind).evidence
    sources = []
    for key in build.evidence:
        source, date = sources_by_key[key]
        sources.append(f"{source} ({date})")
    return Answer(
        title=f"{build.name} · Python {plan.choice.python}",
        reasons=reasons,
        notes=tuple(warning.message for warning in plan.warnings),
        python=plan.choice.python,
        index_url=plan.choice.index or "",
        requirements=plan.choice.requirements,
        source="; ".join(sources),
    )
