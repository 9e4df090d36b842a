"""The selector page: its answers are those of ``choose``, found in the table that it embeds."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from gpuinstall.catalog.gpus import other_chips
from gpuinstall.page import selector_page
from gpuinstall.page.answers import PLATFORMS, packed, unpack_numbers
from gpuinstall.plan import choose
from gpuinstall.request import Request
from gpuinstall.words import machine_in_words
from tests.frozen import frozen_catalog
from tests.lab.selector import ONE_KIND, any_machine, embedded, small_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.catalog.gpus import OtherChip
    from gpuinstall.machine import Machine
    from gpuinstall.page.answers import Answer, Platform, Table
    from gpuinstall.plan import Plan, Refusal

LARGEST = 400_000


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_page(tmp_path_factory).read_text("utf-8")


def found(table: Table, platform: Platform, machine: Machine, python: int, packages: int) -> Answer | None:
    names = table.body["kinds"]
    kinds = [names.index(gpu.architecture or str(gpu.compute_capability)) for gpu in machine.gpus]
    version = machine.driver and machine.driver.version
    return table.answer(platform.key, kinds, version.parts if version else None, python, packages)


def filled(text: str, machine: Machine) -> str:
    """Put in what stands for this machine."""
    for number, name in enumerate(dict.fromkeys(gpu.name or "" for gpu in machine.gpus)):
        text = text.replace(f"{{{number}}}", name)
        indices = ",".join(str(gpu.index) for gpu in machine.gpus if gpu.name == name)
        text = text.replace(f"{{#{number}}}", indices)
    text = text.replace("{chip}", next((gpu.architecture or "" for gpu in machine.gpus), ""))
    driver = machine.driver and machine.driver.version
    row = driver and frozen_catalog().drivers.branch(driver)
    return text.replace("{driver}", str(driver)).replace("{cuda}", str(row[1]) if row else "")


def assert_equal(answer: Answer | None, plan: Plan | Refusal, machine: Machine) -> None:
    """Compare what is chosen, how each kind runs it, and every sentence, with the tool's own."""
    assert answer is not None, machine
    build = plan.choice and (
        str(plan.choice.build.torch),
        plan.choice.build.backend.tag,
        plan.choice.index or "",
        plan.choice.python,
    )
    assert answer.outcome[:2] == (plan.status, str(plan.exit_code)), machine
    assert (answer.build[:4] or None) == build, machine
    assert answer.build[6:] == (plan.choice.requirements if plan.choice else ()), machine
    assert {filled(run, machine) for run in answer.outcome[2:]} == {f"{run.how} {run.runs}" for run in plan.gpus}, (
        machine
    )
    said_once = list(dict.fromkeys(reason.message for reason in plan.reasons))
    assert [filled(text, machine) for text in answer.reasons[1::2]] == said_once, machine
    if plan.choice is None:
        assert [filled(text, machine) for text in answer.notes] == (plan.fix or "").splitlines()


def compare(table: Table, platforms: tuple[Platform, ...], machines: int) -> None:
    chance = random.Random(15)
    for _ in range(machines):
        platform, machine, python, packages = any_machine(platforms, chance)
        request = Request(tuple(table.body["packages"][packages]), python=table.body["pythons"][python])
        plan = choose(machine, request, frozen_catalog())

        assert_equal(found(table, platform, machine, python, packages), plan, machine)


def test_the_table_in_the_page_answers_as_choose_does(text: str) -> None:
    compare(embedded(text), ONE_KIND, 300)


@pytest.mark.parametrize("chip", other_chips(), ids=lambda chip: chip.architecture)
def test_each_chip_of_another_maker_is_answered_as_plan_answers_the_name_of_its_card(
    text: str, chip: OtherChip
) -> None:
    table = embedded(text)
    name = (*chip.products, chip.architecture)[0]
    for platform in ONE_KIND:
        machine = machine_in_words((name,), os=platform.os)
        plan = choose(machine, Request(), frozen_catalog())
        number = table.body["kinds"].index(chip.architecture)

        assert_equal(table.answer(platform.key, [number], None), plan, machine)
        assert table.answer(platform.key, [number], (580, 95, 5)) == table.answer(platform.key, [number], None)


def test_nothing_of_another_maker_is_said_to_be_proven(text: str) -> None:
    table = embedded(text)
    for number in range(len(table.body["kinds"]) - len(other_chips()), len(table.body["kinds"])):
        answers = [table.answer(platform.key, [number], None) for platform in ONE_KIND]
        gpu_builds = [found for found in answers if found and found.outcome[0] == "ok"]

        assert all(any("not proven" in note for note in found.notes) for found in gpu_builds)
    assert "not proven on a card by this project" in text


@pytest.mark.heavy
def test_the_whole_page_answers_as_choose_does_and_stays_small() -> None:
    whole = selector_page(frozen_catalog())

    assert len(whole.encode()) < LARGEST
    compare(embedded(whole), PLATFORMS, 1000)


def test_three_kinds_of_cards_are_not_offered(text: str) -> None:
    assert embedded(text).answer("linux", [0, 5, 9], (580, 95, 5)) is None


def test_packed_numbers_are_read_back() -> None:
    assert unpack_numbers(packed([0, 35, 36, 46655])) == [0, 35, 36, 46655]


class Outside(HTMLParser):
    """Everything in a page that could ask for something elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str | None]] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said: Iterator[Any] = (
            (tag, name, value) for name, value in attrs if name in {"src", "href", "action", "style"}
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

    assert "</script><b>" not in selector_page(hostile, (PLATFORMS[-1],))
    assert text.count("</script>") == 2


def test_without_a_script_the_names_of_the_cards_are_there(text: str) -> None:
    names = re.findall(r"<dt>Ada <small>sm_89</small></dt><dd>(.*?)</dd>", text)

    navi = re.findall(r"<dt>AMD Navi 31 <small>gfx1100</small></dt><dd>(.*?)</dd>", text)

    assert "GeForce RTX 4090" in names[0].split(", ")
    assert "Radeon RX 7900 XTX" in navi[0].split(", ")


def test_every_text_stands_out_from_its_background_in_light_and_in_dark(text: str) -> None:
    schemes = [dict(re.findall(r"--(\w+): (#\w{6})", found)) for found in re.findall(r":root \{([^}]*)\}", text)]
    pairs = [(fore, back) for fore in ("text", "soft", "link", "good", "bad", "mind") for back in ("back", "box")]

    assert len(schemes) == 2
    assert [pair for colours in schemes for pair in pairs if contrast(colours, *pair) < 4.5] == []
    assert [colours for colours in schemes if contrast(colours, "line", "back") < 3] == []


def contrast(colours: dict[str, str], one: str, other: str) -> float:
    """The ratio that WCAG 2 asks for: 4.5 for text, 3 for the borders of what is used."""
    dark, light = sorted((luminance(colours[one]), luminance(colours[other])))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_without_a_script_the_matrix_is_there(text: str) -> None:
    rows = re.findall(r"<tr><th scope=\"row\">Ada <small>sm_89</small></th>(.*?)</tr>", text)

    others = dict(re.findall(r"<tr><th scope=\"row\">[^<]* <small>([^<]*)</small></th>(.*?)</tr>", text))

    assert len(rows) == 3
    assert "2.14.1 cu126" in rows[0]
    assert others["gfx1100"] == "<td>2.14.1 rocm7.2</td><td>–</td>"
    assert others["metal"] == "<td>–</td><td>2.15.0 cpu</td>"
    assert "gfx1032" not in others
