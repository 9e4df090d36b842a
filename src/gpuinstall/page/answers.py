"""What ``choose`` answers for each kind of GPU, on each platform, from each driver on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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
"""The requests of the page; nearly everyone installs torchvision too, and each torch has one."""
CARD = "{card}"
"""Stands for the card's name in a text, which the page fills in."""
DRIVER = "{driver}"
"""Stands for the driver's version in a text."""


class Platform(NamedTuple):
    """A system that the page asks for; its ``key`` is the word for it in the page's address."""

    key: str
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

    name: str
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
    """The exact versions to install; none if no build fits."""
    source: str = ""


DriverParts = tuple[int, ...]
Answers = tuple[Answer, ...]
"""One answer for each of ``PACKAGES``."""


def page_data(catalog: Catalog, platforms: Sequence[Platform] = PLATFORMS) -> dict[str, Any]:
    """Return the document that the page embeds, where an answer is its position in ``answers``."""
    kinds = kinds_of_gpus(catalog)
    positions: dict[Answer, int] = {}
    rows = []
    for platform in platforms:
        by_kind = []
        for kind in kinds:
            by_driver = []
            for first, answers in answers_by_driver(platform, kind, catalog):
                own = [positions.setdefault(answer, len(positions)) for answer in answers]
                by_driver.append([first, own])
            by_kind.append(by_driver)
        rows.append(
            {
                "key": platform.key,
                "name": platform.name,
                "kinds": by_kind,
            }
        )
    return {
        "packages": PACKAGES,
        "kinds": [_kind_row(kind) for kind in kinds],
        "platforms": rows,
        "answers": [answer._asdict() for answer in positions],
    }


def _kind_row(kind: Kind) -> dict[str, Any]:
    return {
        "name": kind.name,
        "code": kind.code,
        "cards": kind.cards,
        "os": kind.os,
    }


def kinds_of_gpus(catalog: Catalog) -> tuple[Kind, ...]:
    """Return every kind: by capability, the highest first; by chip; and no GPU.

    Without Jetsons before Thor.
    """
    names: dict[ComputeCapability, set[str]] = {}
    for product in products():
        if product.capability not in catalog.drivers.tegra:
            names.setdefault(product.capability, set()).add(product.name)
    kinds = []
    for capability in sorted(names, reverse=True):
        generation = catalog.drivers.generation(capability)
        kinds.append(
            Kind(
                name=generation.name if generation else "",
                code=capability.sm,
                cards=tuple(sorted(names[capability])),
                capability=capability,
            )
        )
    for chip in other_chips():
        name = chip.name if chip.name.startswith(chip.brand) else f"{chip.brand} {chip.name}"
        kinds.append(
            Kind(
                name=name,
                code=chip.architecture,
                cards=chip.products or (chip.architecture,),
                maker=chip.maker,
                os=chip.os,
            )
        )
    return (*kinds, Kind("no GPU", "", ("No GPU",)))


def answers_by_driver(
    platform: Platform,
    kind: Kind,
    catalog: Catalog,
) -> Sequence[tuple[DriverParts | None, Answers]]:
    """Return the answers for one GPU of a kind, each with the first driver that has them.

    The driver is None where it does not matter.
    """

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

    if kind.capability is None or platform.os == "macos":
        return [(None, answers_for(None))]
    borders = driver_borders(platform, catalog)
    return changes(borders, lambda first: answers_for(Driver(DriverVersion(first, DRIVER))))


def driver_borders(platform: Platform, catalog: Catalog) -> list[DriverParts]:
    """Return the releases from which on a rule may judge a driver anew, the oldest first."""
    tables = catalog.drivers
    borders = set()
    for floor in (*tables.floors.values(), *tables.first_drivers.values()):
        version = floor.windows if platform.has_windows_driver else floor.linux
        borders.add(version.parts)
    branches = [branch for branch, _ in tables.branches]
    last_branches = [row.last_branch for row in tables.generations if row.last_branch is not None]
    last_branches += [branches[-1], tables.partially_supported.last]
    branches += [last + 1 for last in last_branches]
    # A branch that is named alone would stand for its newest release.
    borders.update((branch, 0) for branch in (0, *branches))
    return sorted(borders)


def changes(
    borders: Sequence[DriverParts],
    ask: Callable[[DriverParts], Answers],
) -> list[tuple[DriverParts, Answers]]:
    """Return the borders at which the answer changes, with the answer from there on.

    What lies between two borders with the same answer is not asked. Newer drivers bring newer
    builds until one drops the chip, so that no answer returns after another; a test asks at each
    border.
    """
    answers = {border: ask(border) for border in (borders[0], borders[-1])}
    stretches = [(0, len(borders) - 1)]
    while stretches:
        first, last = stretches.pop()
        middle = (first + last) // 2
        if middle > first and answers[borders[first]] != answers[borders[last]]:
            answers[borders[middle]] = ask(borders[middle])
            stretches += [(first, middle), (middle, last)]
    changed: list[tuple[DriverParts, Answers]] = []
    for border in sorted(answers):
        if not changed or changed[-1][1] != answers[border]:
            changed.append((border, answers[border]))
    return changed


def answer_of(
    plan: Plan | Rejected,
    command: str,
    catalog: Catalog,
) -> Answer:
    """Return what the page shows for a plan.

    Args:
        command: The one that makes the plan.
    """
    reasons = tuple(dict.fromkeys(reason.message for reason in plan.reasons))
    if isinstance(plan, Rejected):
        fixes = (plan.fix or "").replace("the same with ", f"{command} ")
        return Answer(
            "No build fits",
            reasons,
            notes=tuple(fixes.splitlines()),
        )
    build = plan.choice.build
    evidence = catalog.serving(build.backend.kind).evidence
    sources = []
    for key in build.evidence:
        source, date = evidence[key]
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
