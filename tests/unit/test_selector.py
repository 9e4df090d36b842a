"""The selector page: its results equal the results of ``choose``."""

import json
import random
import re
from functools import cache
from typing import NamedTuple

import pytest
from packaging.version import Version
from tools.site.selector import (
    DRIVER,
    PACKAGES,
    PLATFORMS,
    Platform,
    build_selector_page,
    find_driver_boundaries,
    format_answer,
    list_gpu_kinds,
)

from gpuinstall.api import choose
from gpuinstall.base.machine import Driver
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.base.versions import DriverVersion
from tests.frozen import frozen_catalog

SMALL = (PLATFORMS[0], PLATFORMS[-1])
"""Seconds that suffice on Linux and macOS for three releases."""


@cache
def catalog():
    frozen = frozen_catalog()
    releases = {Version("2.7.1"), Version("2.14.1"), Version("2.15.0")}
    builds = [build for build in frozen.builds if build.torch in releases]
    return replace(frozen, builds=tuple(builds))


@cache
def kinds():
    return list_gpu_kinds(catalog())


class Visit(NamedTuple):
    """The choices of a visitor."""

    platform: Platform
    kind: int
    """The index of a kind of GPU."""
    driver: DriverVersion | None
    packages: int
    """The index of a package selection."""

    @property
    def machine(self):
        """Return the visitor's machine."""
        kind = kinds()[self.kind]
        gpu = kind.gpu and replace(kind.gpu, name=kind.cards[0])
        return self.platform.machine(gpu, Driver(self.driver) if self.driver else None)


def any_visit(chance):
    """Return random choices, with drivers at and near a limit."""
    platform = chance.choice(SMALL)
    kind = chance.randrange(len(kinds()))
    driver = None
    if kinds()[kind].needs_driver and platform.os != "macos":
        first = chance.choice(find_driver_boundaries(platform, catalog()))
        branch = max(first[0], 390)
        releases = [
            (branch, *first[1:]),
            (branch, *first[1:], 5),
            (branch, 99),
            (branch - 1, 40),
            (branch,),
        ]
        parts = chance.choice(releases)
        driver = DriverVersion(parts, ".".join(map(str, parts)))
    return Visit(platform, kind, driver, chance.randrange(len(PACKAGES)))


@pytest.fixture(scope="module")
def text():
    return build_selector_page(catalog(), SMALL)


@cache
def embedded(text):
    """Return the document in a page."""
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL
    )
    assert found
    return json.loads(found[1])


def shown(text, visit):
    """Return the page's result for a visit."""
    document = embedded(text)
    platform = next(
        row for row in document["platforms"] if row["key"] == visit.platform.key
    )
    ranges = platform["ranges"][visit.kind]
    answers = ranges[0][1]
    if ranges[0][0] is not None:
        parts = visit.driver.parts if visit.driver else ()
        newest = (*parts, float("inf")) if len(parts) == 1 else parts
        answers = next(
            found for first, found in reversed(ranges) if tuple(first) <= newest
        )
    card = document["kinds"][visit.kind]["cards"][0]
    answer = json.dumps(document["answers"][answers[visit.packages]])
    return json.loads(answer.replace("{card}", card).replace(DRIVER, str(visit.driver)))


def planned(visit):
    """Return the plan that the page must show."""
    packages = PACKAGES[visit.packages]
    plan = choose(visit.machine, Request(packages), catalog())
    return json.loads(json.dumps(format_answer(plan, packages)))


@pytest.mark.heavy
def test_selector_page_results_match_plan(text):
    chance = random.Random(15)
    visits = [any_visit(chance) for _ in range(300)]

    assert [visit for visit in visits if shown(text, visit) != planned(visit)] == []


def test_selector_page_loads_no_external_resources():
    text = build_selector_page(catalog(), SMALL[1:])
    outside = re.findall(
        r"""<[^>]*\s(?:src|href|action|style|on\w+)=["'](?!#)([^"']*)""", text
    )

    assert outside == ["../support-table.html"]
    assert "default-src 'none'; style-src 'sha256-" in text
    assert not re.search(
        r"innerHTML|fetch\(|XMLHttpRequest|import\(|eval\(|url\(", text
    )


def test_catalog_text_cannot_close_script_element():
    hostile = replace(catalog(), date="</script><b>")
    text = build_selector_page(hostile, ())

    assert "</script><b>" not in text
    assert text.count("</script>") == 2
