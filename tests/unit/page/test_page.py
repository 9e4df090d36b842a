"""The selector page: its answers are those of ``choose``, found in the document that it embeds."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from gpuinstall.api import choose
from gpuinstall.page import selector_page
from gpuinstall.page.answers import (
    DRIVER,
    PACKAGES,
    PLATFORMS,
    Answer,
    answer_of,
    changes,
    driver_borders,
    kinds_of_gpus,
)
from gpuinstall.request import Request
from gpuinstall.versions import DriverVersion
from tests.frozen import frozen_catalog
from tests.lab.selector import SMALL, Visit, any_visit, embedded, small_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.page.answers import Answers, DriverParts, Platform

LARGEST = 150_000


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_page(tmp_path_factory).read_text("utf-8")


def answer_in(document: dict[str, Any], visit: Visit) -> dict[str, Any]:
    """Return what the page shows for a visit, as its script finds it, with the names filled in."""
    platform = next(row for row in document["platforms"] if row["key"] == visit.platform.key)
    ranges = platform["ranges"][visit.kind]
    answers = ranges[0][1]
    if ranges[0][0] is not None:
        parts = visit.driver.parts if visit.driver else ()
        newest = (*parts, float("inf")) if len(parts) == 1 else parts
        answers = next(found for first, found in reversed(ranges) if tuple(first) <= newest)
    answer: dict[str, Any] = document["answers"][answers[visit.packages]]
    card = document["kinds"][visit.kind]["cards"][0]

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(text) for text in value]
        return value.replace("{card}", card).replace("{driver}", str(visit.driver))

    return {key: filled(value) for key, value in answer.items()}


def answer_of_plan(visit: Visit) -> dict[str, Any]:
    """Return what the page has to show for a visit, by asking ``choose`` for its machine."""
    packages = PACKAGES[visit.packages]
    plan = choose(visit.machine, Request(packages), frozen_catalog())
    answer = answer_of(plan, f"gpuinstall install {' '.join(packages)}", frozen_catalog())
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in answer._asdict().items()
    }


def wrong_visits(
    document: dict[str, Any], platforms: Sequence[Platform], count: int
) -> list[Visit]:
    chance = random.Random(15)
    visits = [any_visit(platforms, chance) for _ in range(count)]
    return [visit for visit in visits if answer_in(document, visit) != answer_of_plan(visit)]


def test_the_page_answers_as_choose_does(text: str) -> None:
    assert wrong_visits(embedded(text), SMALL, 300) == []


def test_each_driver_border_has_the_answer_of_choose(text: str) -> None:
    document, platform = embedded(text), SMALL[0]
    nvidias = [
        number for number, kind in enumerate(kinds_of_gpus(frozen_catalog())) if kind.capability
    ]
    drivers = [DriverVersion(parts, DRIVER) for parts in driver_borders(platform, frozen_catalog())]
    visits = [Visit(platform, kind, driver, 0) for kind in nvidias for driver in drivers]

    assert [visit for visit in visits if answer_in(document, visit) != answer_of_plan(visit)] == []


def test_only_where_the_answer_changes_are_all_borders_asked() -> None:
    asked: list[DriverParts] = []
    old: Answers = (Answer("old", (), ()),)
    new: Answers = (Answer("new", (), ()),)
    borders = [(number,) for number in range(100)]

    def ask(border: DriverParts) -> Answers:
        asked.append(border)
        return old if border < (37,) else new

    assert changes(borders, ask) == [((0,), old), ((37,), new)]
    assert len(asked) < 10


def test_every_chip_has_an_answer_and_none_of_another_maker_is_called_proven(text: str) -> None:
    document = embedded(text)
    others = [number for number, kind in enumerate(kinds_of_gpus(frozen_catalog())) if kind.maker]
    visits = [Visit(platform, kind, None, 0) for platform in SMALL for kind in others]
    answers = {visit: answer_in(document, visit) for visit in visits}
    served = [
        answer
        for answer in answers.values()
        if answer["requirements"] and "+cpu" not in answer["title"]
    ]

    assert [visit for visit in visits if answers[visit] != answer_of_plan(visit)] == []
    assert len(served) > 20
    assert [
        answer for answer in served if not any("not proven" in note for note in answer["notes"])
    ] == []
    assert "not proven on a card by this project" in text


@pytest.mark.heavy
def test_the_whole_page_answers_as_choose_does_and_stays_small() -> None:
    whole = selector_page(frozen_catalog())

    assert len(whole.encode()) < LARGEST
    assert wrong_visits(embedded(whole), PLATFORMS, 1000) == []


class Outside(HTMLParser):
    """Everything in a page that could ask for something elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str | None]] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said: Iterator[Any] = (
            (tag, name, value)
            for name, value in attrs
            if name in {"src", "href", "action", "style"}
        )
        self.found += [each for each in said if not (each[2] or "").startswith("#")]
        self.found += [(tag, name, value) for name, value in attrs if name.startswith("on")]
        self.ids += [value for name, value in attrs if name == "id" and value]


def test_the_page_asks_nothing_of_anyone_and_allows_only_its_own_script(text: str) -> None:
    outside = Outside()
    outside.feed(text)

    assert outside.found == []
    assert len(outside.ids) == len(set(outside.ids))
    assert "default-src 'none'; style-src 'sha256-" in text
    assert "innerHTML" not in text
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|eval\(|url\(", text)


def test_nothing_in_the_catalogue_ends_the_script(text: str) -> None:
    hostile = replace(frozen_catalog(), date="</script><b>")

    assert "</script><b>" not in selector_page(hostile, ())
    assert text.count("</script>") == 2


def test_every_text_stands_out_from_its_background_in_light_and_in_dark(text: str) -> None:
    schemes = [
        dict(re.findall(r"--(\w+): (#\w{6})", found))
        for found in re.findall(r":root \{([^}]*)\}", text)
    ]
    pairs = [
        (fore, back)
        for fore in ("text", "soft", "link", "good", "bad", "mind")
        for back in ("back", "box")
    ]

    assert len(schemes) == 2
    assert [pair for colours in schemes for pair in pairs if contrast(colours, *pair) < 4.5] == []
    assert [colours for colours in schemes if contrast(colours, "line", "back") < 3] == []


def contrast(colours: dict[str, str], one: str, other: str) -> float:
    """The ratio that WCAG 2 asks for: 4.5 for text, 3 for the borders of what is used."""
    dark, light = sorted((luminance(colours[one]), luminance(colours[other])))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_without_a_script_the_tables_are_there(text: str) -> None:
    rows = dict(re.findall(r'<tr><th scope="row">([^<]*)</th>(.*?)</tr>', text))
    navi = next(cells for name, cells in rows.items() if "Radeon RX 7900 XTX" in name)
    apple = next(cells for name, cells in rows.items() if name.endswith("(metal)"))

    assert "2.14.1+cu126" in rows["RTX 40 (8.9)"]
    assert navi == "<td>linux</td><td>2.14.1+rocm7.2</td>"
    assert apple == "<td>macos</td><td>2.15.0+cpu</td>"
    assert "gfx1032" not in " ".join(rows)
