"""Random machines to ask the selector page for, and the document that a page embeds."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.machine import Driver, Environment, Machine
from gpuinstall.page import selector_page
from gpuinstall.page.answers import PACKAGES, PLATFORMS, driver_borders, kinds_of_gpus
from gpuinstall.versions import DriverVersion
from tests.frozen import frozen_catalog
from tests.lab.shared import once

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from gpuinstall.page.answers import Platform

SMALL = (PLATFORMS[0], PLATFORMS[-1])
"""Linux and macOS: what seconds are enough for."""


class Visit(NamedTuple):
    """What a visitor chooses."""

    platform: Platform
    kind: int
    """The position of a kind of GPU."""
    driver: DriverVersion | None
    packages: int
    """The position of a choice of packages."""

    @property
    def machine(self) -> Machine:
        """The machine of such a visitor."""
        kind = kinds_of_gpus(frozen_catalog())[self.kind]
        return Machine(
            self.platform.os,
            self.platform.arch,
            environment=Environment(wsl=self.platform.wsl),
            driver=Driver(self.driver) if self.driver else None,
            gpus=tuple(replace(gpu, name=kind.cards[0]) for gpu in kind.gpus),
        )


def small_page(factory: pytest.TempPathFactory) -> Path:
    """Return the page for these, made once for a session."""

    def make(folder: Path) -> None:
        folder.mkdir()
        (folder / "index.html").write_text(selector_page(frozen_catalog(), SMALL), encoding="utf-8")

    return once(factory, "page", make) / "index.html"


def embedded(text: str) -> dict[str, Any]:
    """Return the document in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    document: dict[str, Any] = json.loads(found[1])
    return document


def any_driver(platform: Platform, chance: random.Random) -> DriverVersion:
    """Return a release at, just below or somewhere above a border, or a branch alone."""
    first = chance.choice(driver_borders(platform, frozen_catalog()))
    branch = max(first[0], 390)
    below = max(first[0] - 1, 390)
    releases = [
        (branch, *first[1:]),
        (branch, *first[1:], 5),
        (branch, 99),
        (below, 40, 2),
        (branch,),
    ]
    parts = chance.choice(releases)
    return DriverVersion(parts, ".".join(map(str, parts)))


def any_visit(platforms: Sequence[Platform], chance: random.Random) -> Visit:
    """Return a random choice, with NVIDIA's GPUs in two of three."""
    platform = chance.choice(platforms)
    kinds = kinds_of_gpus(frozen_catalog())
    positions = list(range(len(kinds)))
    if chance.random() < 0.67:
        positions = [position for position in positions if kinds[position].capability]
    kind = chance.choice(positions)
    driver = None
    if kinds[kind].capability and platform.os != "macos":
        driver = any_driver(platform, chance)
    return Visit(platform, kind, driver, packages=chance.randrange(len(PACKAGES)))
