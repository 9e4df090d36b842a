"""Generate the selector page: the build for each GPU, platform, and driver."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.base.advice import apply_to_install
from gpuinstall.base.machine import Driver, Environment, Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.base.versions import DriverVersion
from gpuinstall.catalog.data_files import read_data
from gpuinstall.catalog.gpus import load_other_chips, load_products
from gpuinstall.catalog.loader import OTHER_KINDS
from gpuinstall.plan import Rejected, choose
from tools.support_table import list_gpu_capabilities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.plan import Plan

PARTS = Path(__file__).parent / "page"
PACKAGES = (("torch", "torchvision"), ("torch", "torchvision", "torchaudio"))
"""The requests of the page. In page.js, the first package must be torch."""
CARD = "{card}"
"""Placeholder of the GPU's name, which page.js replaces."""
DRIVER = "{driver}"
"""Placeholder of the driver's version, so equal plans have equal texts."""


class Platform(NamedTuple):
    """A system that the user can select on the page."""

    key: str
    """The word in the page's URL. page.js compares it with ``Kind.os``."""
    name: str
    os: str
    arch: str
    wsl: bool = False

    def machine(self, gpu: Gpu | None, driver: Driver | None = None) -> Machine:
        """Return a machine with this system."""
        return Machine(
            self.os,
            self.arch,
            environment=Environment(wsl=self.wsl),
            driver=driver,
            gpus=(gpu,) if gpu else (),
        )


PLATFORMS = (
    Platform("linux", "Linux", "linux", "x86_64"),
    Platform("windows", "Windows", "windows", "x86_64"),
    Platform("wsl", "Windows with WSL", "linux", "x86_64", wsl=True),
    Platform("linux-arm", "Linux on ARM (Grace, DGX Spark)", "linux", "aarch64"),
    Platform("macos", "macOS", "macos", "arm64"),
)


class Kind(NamedTuple):
    """GPUs with the same plans: a compute capability or a chip."""

    code: str
    """The name of their code, such as ``sm_89``, or empty for no GPU."""
    cards: tuple[str, ...]
    gpu: Gpu | None = None
    """A GPU with a placeholder as its name."""
    os: str | None = None
    """The only system with these GPUs, if any."""

    @property
    def needs_driver(self) -> bool:
        """Whether the plan depends on the driver."""
        return self.gpu is not None and self.gpu.compute_capability is not None


def list_gpu_kinds(catalog: Catalog) -> list[Kind]:
    """Return kinds by descending capability, then other chips, then no GPU."""
    kinds = []
    for capability in reversed(list_gpu_capabilities(catalog.drivers)):
        cards = {
            product.name
            for product in load_products()
            if product.capability == capability
        }
        gpu = Gpu(0, CARD, compute_capability=capability)
        kinds.append(Kind(capability.sm, tuple(sorted(cards)), gpu))
    for chip in load_other_chips():
        gpu = Gpu(0, CARD, vendor=chip.maker, architecture=chip.architecture)
        cards_of_chip = chip.products or (chip.code,)
        kinds.append(Kind(chip.code, cards_of_chip, gpu, chip.os))
    return [*kinds, Kind("", ("No GPU",))]


def build_selector_page(
    catalog: Catalog, platforms: Sequence[Platform] = PLATFORMS
) -> str:
    """Return the page for a catalog, which takes half a minute."""
    style = (PARTS / "page.css").read_text("utf-8").strip()
    script = (PARTS / "page.js").read_text("utf-8").strip()
    policy = (
        "default-src 'none'",
        f"style-src {_csp_source(style)}",
        f"script-src {_csp_source(script)}",
        "base-uri 'none'",
        "form-action 'none'",
    )
    document = json.dumps(
        build_page_data(catalog, platforms), separators=(",", ":"), ensure_ascii=False
    )
    text_at = {
        "POLICY": "; ".join(policy),
        "STYLE": style,
        "SCRIPT": script,
        "DATE": escape(catalog.date),
        # "</script>" in a text would end the element. In JSON, \u003c is "<".
        "DATA": document.replace("<", "\\u003c"),
    }
    # Every second piece is the name of a placeholder, ``@NAME@``. Inserted texts may contain an @.
    pieces = (PARTS / "page.html").read_text("utf-8").strip().split("@")
    pieces[1::2] = [text_at[name] for name in pieces[1::2]]
    return "".join(pieces) + "\n"


def _csp_source(text: str) -> str:
    """Return the Content-Security-Policy hash of one style or script."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def build_page_data(
    catalog: Catalog, platforms: Sequence[Platform] = PLATFORMS
) -> dict[str, Any]:
    """Return the document that the page embeds and page.js reads.

    ``answers`` contains each answer once, and other lists contain positions in it. For
    each kind, a platform has ranges of drivers, each with the first driver (null: any)
    and the position of one answer for each of ``packages``::

        {"packages": [["torch", "torchvision"], ["torch", "torchvision", "torchaudio"]],
         "kinds": [{"code": "sm_89", "cards": ["RTX 4090"], "os": null}],
         "platforms": [{"key": "linux", "name": "Linux", "ranges": [[[[0, 0], [0, 1]], [[525, 0], [2, 3]]]]}],
         "answers": [{"title": "No build fits", "reasons": []}]}
    """
    kinds = list_gpu_kinds(catalog)
    positions: dict[str, int] = {}
    rows = []
    for platform in platforms:
        # Include impossible combinations, because page.js finds a kind by its position.
        ranges = [_ranges(platform, kind, catalog, positions) for kind in kinds]
        rows.append({"key": platform.key, "name": platform.name, "ranges": ranges})
    return {
        "packages": PACKAGES,
        "kinds": [
            {"code": kind.code, "cards": kind.cards, "os": kind.os} for kind in kinds
        ],
        "platforms": rows,
        "answers": [json.loads(answer) for answer in positions],
    }


def _ranges(
    platform: Platform,
    kind: Kind,
    catalog: Catalog,
    positions: dict[str, int],
) -> list[tuple[tuple[int, ...] | None, list[int]]]:
    """Return the first driver of each range with the selected builds."""
    borders: list[tuple[int, ...] | None] = [None]
    if kind.needs_driver and platform.os != "macos":
        borders = [*find_driver_boundaries(platform, catalog)]
    ranges: list[tuple[tuple[int, ...] | None, list[int]]] = []
    for border in borders:
        driver = Driver(DriverVersion(border, DRIVER)) if border else None
        numbers = []
        for packages in PACKAGES:
            plan = choose(
                platform.machine(kind.gpu, driver), Request(packages), catalog
            )
            answer = json.dumps(format_answer(plan, packages))
            numbers.append(positions.setdefault(answer, len(positions)))
        if not ranges or ranges[-1][1] != numbers:
            ranges.append((border, numbers))
    return ranges


def find_driver_boundaries(
    platform: Platform, catalog: Catalog
) -> list[tuple[int, ...]]:
    """Return the drivers at which the selected build may change, ascending."""
    tables = catalog.drivers
    borders = set()
    for floor in (*tables.floors.values(), *tables.first_drivers.values()):
        is_windows = platform.wsl or platform.os == "windows"
        borders.add((floor.windows if is_windows else floor.linux).parts)
    branches = [branch for branch, _ in tables.branches]
    ended = [
        row.last_branch for row in tables.generations if row.last_branch is not None
    ]
    # Add the branch after each last supported branch, and after the latest known branch.
    branches += [
        branch + 1 for branch in (*ended, tables.partially_supported.last, branches[-1])
    ]
    # Use (branch, 0), because (branch,) means the latest release of the branch. (0, 0) precedes every driver.
    borders.update((branch, 0) for branch in (0, *branches))
    return sorted(borders)


def format_answer(plan: Plan | Rejected, packages: Sequence[str]) -> dict[str, Any]:
    """Return the text for a plan, with placeholders for GPU and driver."""
    # If several reasons have the same message, keep the first.
    reasons = list(dict.fromkeys(reason.message for reason in plan.reasons))
    if isinstance(plan, Rejected):
        # page.js treats an answer without requirements as a rejection.
        return {
            "title": "No build fits",
            "reasons": reasons,
            "notes": [
                *map(str, apply_to_install((*plan.fixes, *plan.changes), *packages))
            ],
            "requirements": [],
        }
    build = plan.choice.build
    kind = build.backend.kind
    file = f"{OTHER_KINDS.get(kind, 'builds')}.toml"
    evidence = read_data(file)["evidence"]
    sources = [
        f"{evidence[key]['source']} ({evidence[key]['date']})" for key in build.evidence
    ]
    return {
        "title": f"{build.name} · Python {plan.choice.python}",
        "reasons": reasons,
        "notes": [warning.message for warning in plan.warnings],
        "python": plan.choice.python,
        "index_url": plan.choice.index or "",
        "requirements": [*map(str, plan.choice.requirements)],
        "source": "; ".join(sources),
    }
