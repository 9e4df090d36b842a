"""Random machines to ask the selector page for, and the table that a page embeds."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from gpuinstall.machine import Driver, Environment, Machine
from gpuinstall.page import selector_page
from gpuinstall.page.answers import PLATFORMS, Table, kinds_of_gpus, spans_of
from gpuinstall.versions import DriverVersion
from tests.frozen import frozen_catalog
from tests.lab.shared import once

if TYPE_CHECKING:
    import random
    from pathlib import Path

    import pytest

    from gpuinstall.page.answers import Platform

ONE_KIND = (PLATFORMS[0]._replace(mixed=False), PLATFORMS[-1])
"""Linux with one kind of card, and macOS: what seconds are enough for."""


def small_page(factory: pytest.TempPathFactory) -> Path:
    """The page for these, made once for a session; seconds of a processor."""

    def make(folder: Path) -> None:
        folder.mkdir()
        (folder / "index.html").write_text(selector_page(frozen_catalog(), ONE_KIND), encoding="utf-8")

    return once(factory, "page", make) / "index.html"


def embedded(text: str) -> Table:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return Table(json.loads(found[1]))


def drivers(platform: Platform, chance: random.Random) -> DriverVersion:
    """A release at, just below or somewhere above a border, or a branch alone."""
    first = chance.choice(spans_of(platform, frozen_catalog().drivers)).first
    parts = chance.choice([first, (*first, 0, 5)[:3], (first[0], 99), (max(first[0] - 1, 390), 40, 2), (first[0],)])
    return DriverVersion.parse(
        ".".join(str(max(part, 390) if not number else part) for number, part in enumerate(parts))
    )


def any_machine(platforms: tuple[Platform, ...], chance: random.Random) -> tuple[Platform, Machine, int, int]:
    """A machine that the page has an answer for: with one or two kinds of NVIDIA's GPUs, or one of another maker's."""
    platform, kinds = chance.choice(platforms), kinds_of_gpus(frozen_catalog())
    nvidias = [kind for kind in kinds if kind.capability and platform.os != "macos"]
    others = [kind for kind in kinds if not kind.capability]
    several = platform.mixed and chance.random() < 0.5
    if several:
        drawn = chance.sample(nvidias, 2)
    elif chance.random() < 0.3:
        drawn = [chance.choice(others)]
    else:
        drawn = [chance.choice(nvidias)] if nvidias else []
    here = sorted(drawn * chance.choice([1, 1, 2]), key=kinds.index)
    cards = [kind.gpu(index, f"Card {kind.sm}") for index, kind in enumerate(here)]
    driven = platform.os != "macos" and all(kind.capability for kind in drawn)
    driver = Driver(drivers(platform, chance)) if driven and chance.random() < 0.95 else None
    environment = Environment(wsl=platform.wsl)
    machine = Machine(platform.os, platform.arch, environment=environment, driver=driver, gpus=tuple(cards))
    return platform, machine, 0 if several else chance.randrange(3), chance.randrange(3)
