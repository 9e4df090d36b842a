"""The selector page in a real browser: answered by its script, from its own table, without a request."""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from gpuinstall.page.answers import PLATFORMS
from tests.lab.axe import axe, serious
from tests.lab.browser import CHROMIUM, Browser, browser
from tests.lab.forked import gpuinstall
from tests.lab.selector import ONE_KIND, any_machine, embedded, small_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.machine import Machine
    from gpuinstall.page.answers import Platform

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]
RECORDED = sorted(Path(__file__).resolve().parents[1].joinpath("data", "machines").glob("*/nvidia-smi.txt"))
TAB, ENTER, DOWN = ("Tab", 9), ("Enter", 13), ("ArrowDown", 40)
STATES = (
    "",
    "gpu=GeForce+RTX+4090&driver=535.183.01",
    "gpu=GeForce+RTX+4090",
    "gpu=GeForce+GTX+980&driver=595.1",
    "gpu=sm_120&gpu=sm_89&gpu=sm_61&driver=580.1",
)
"""Nothing, an answer, what depends on the driver, a refusal, and what the page has no answer for."""
SHOW = """(hashes) => hashes.map((hash) => {
  readAddress(hash); render();
  const answer = document.getElementById("answer");
  return [answer.querySelector("h2")?.textContent, answer.textContent, document.getElementById("tab-requirements") ?
    (document.getElementById("tab-requirements").click(), document.getElementById("command").textContent) : ""];
})"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_page(tmp_path_factory)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def opened(started: Browser, place: Path) -> Browser:
    started.open(place.as_uri())
    return started


def address(platform: Platform, machine: Machine, python: str | None, packages: list[str]) -> str:
    words = [("gpu", gpu.code_name or "") for gpu in machine.gpus]
    driver = str(machine.driver.version) if machine.driver else "none"
    words += [("driver", driver), ("os", platform.key), ("python", python or ""), ("with", ",".join(packages[1:]))]
    return urlencode(words)


def compare(shown: Browser, platforms: tuple[Platform, ...], body: Any, machines: int) -> None:
    """Ask the page and ``gpuinstall plan --json`` for the same random machines."""
    chance, addresses, documents = random.Random(16), [], []  # of each document the command that gave it, too
    for _ in range(machines):
        platform, machine, python, packages = any_machine(platforms, chance)
        asked, chosen = body["packages"][packages], body["pythons"][python]
        addresses.append(address(platform, machine, chosen, asked))
        words = ["plan", *asked, *(["--python", chosen] if chosen else []), "--machine", "-", "--json"]
        document = json.loads(gpuinstall(*words, text=json.dumps(machine.to_dict())).out)
        documents.append((document, f"gpuinstall {shlex.join(words)}"))

    for hash_, (document, command), (title, said, pins) in zip(
        addresses, documents, shown.run(f"({SHOW})({json.dumps(addresses)})"), strict=True
    ):
        build = document["data"]["build"]
        wanted = f"torch {build['torch']}+{build['backend']} · Python {build['python']}" if build else "No build fits"
        assert title == wanted, hash_
        if build:
            assert [line for line in pins.splitlines() if "==" in line] == build["requirements"], hash_
        else:
            assert f"exit status {document['exit_code']} " in said, hash_
            hint = (document["errors"][0]["hint"] or "").replace(command, "the same with")
            assert all(line.partition("Card")[0] in said for line in hint.splitlines()), hash_


def test_random_machines_are_answered_as_plan_answers_them(opened: Browser, place: Path) -> None:
    compare(opened, ONE_KIND, embedded(place.read_text("utf-8")).body, 60)


@pytest.mark.heavy
def test_the_page_of_the_command_answers_500_random_machines_as_plan_does(started: Browser, tmp_path: Path) -> None:
    done = gpuinstall("page", "-o", str(tmp_path / "new"), "--json", seconds=600)
    place = tmp_path / "new" / "index.html"
    text = place.read_text("utf-8")
    data = json.loads(done.out)["data"]
    assert (done.status, data) == (0, {"path": str(place), "bytes": len(text.encode())})

    started.open(place.as_uri())
    compare(started, PLATFORMS, embedded(text).body, 500)


def pasted(shown: Browser, text: str) -> dict[str, Any]:
    shown.run(f"document.getElementById('paste').value = {json.dumps(text)}; document.getElementById('read').click()")
    found: dict[str, Any] = shown.run("({...state, said: document.getElementById('pasted').textContent})")
    return found


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.parent.name)
def test_what_nvidia_smi_printed_is_read_as_probe_reads_it(opened: Browser, recorded: Path) -> None:
    text = recorded.read_text("utf-8")
    machine = json.loads(recorded.with_name("machine.json").read_text("utf-8"))
    machine = machine.get("data", machine)
    found = pasted(opened, text)

    header = re.search(r"(?:Driver|KMD) Version: *([\d.]+)", text)
    assert found["driver"] == (header[1] if header else "")
    kinds = {gpu["index"]: gpu["compute_capability"] for gpu in machine["gpus"]}
    names = opened.run("data.kinds")
    for card in found["cards"]:
        assert kinds.get(card["index"]) in {None, names[card["kind"]]}
    assert found["cards"] or "choose them above" in found["said"] or not kinds


def test_a_probe_document_is_read_with_its_system_and_its_faults(opened: Browser) -> None:
    gpu = {"index": 3, "name": "NVIDIA A100-SXM4-80GB", "compute_capability": "8.0"}
    problem = {"code": "x", "message": "it is <b>broken</b>", "fix": "reboot"}
    document = {"schema": "gpuinstall.machine/1", "os": "windows", "arch": "x86_64", "gpus": [gpu]}
    found = pasted(opened, json.dumps({"data": {**document, "driver": {"version": "580.1"}, "problems": [problem]}}))

    assert (found["driver"], found["cards"][0]["index"]) == ("580.1", 3)
    assert "it is <b>broken</b> (reboot)" in found["said"]
    assert opened.run("document.querySelectorAll('b').length") == 0


@pytest.mark.parametrize(
    "text",
    [
        "x" * 10_000_000,
        "| " * 90_000,
        "GPU 0: <img src=x onerror=document.title='taken'> (UUID: GPU-1)\n",
        '{"schema": "gpuinstall.machine/1", "gpus": [null, 7, {"name": {"a": 1}}], "problems": [null], "driver": 7}',
        '{"data":' * 9000,
        "\0\x1b[31m\u202e NVIDIA-SMI 580 Driver Version: 580.1\n",
    ],
    ids=["10 MB", "bars", "markup", "odd values", "deep", "control characters"],
)
def test_hostile_text_breaks_nothing_and_is_not_executed(opened: Browser, text: str) -> None:
    pasted(opened, text)

    assert opened.run("document.title") == "Which PyTorch runs on my GPU?"
    assert opened.run("document.querySelectorAll('img').length") == 0
    title = opened.run(f"({SHOW})(['gpu=GeForce+RTX+4090&driver=580.95.05'])")[0][0]
    assert title.startswith("torch ")


def test_the_keyboard_alone_suffices(opened: Browser) -> None:
    opened.run("document.getElementById('search').focus()")
    opened.type("5090")
    opened.press(*ENTER)
    assert opened.run("state.cards[0].name.includes('5090')")
    opened.type("a100 sxm")
    opened.press(*DOWN)
    opened.press(*ENTER)
    assert opened.run("state.cards.length") == 2
    opened.press(*TAB)
    assert opened.run("document.activeElement.getAttribute('aria-label')").startswith("Remove ")
    opened.press(*ENTER)
    assert opened.run("state.cards.length") == 1


@pytest.mark.parametrize(
    ("said", "chip"),
    [
        ("5090", "12.0"),
        ("gb10", "12.1"),
        ("a100 sxm", "8.0"),
        ("rtx 4060 laptop", "8.9"),
        ("4060 la", "8.9"),
        ("v100", "7.0"),
        ("7900 xtx", "gfx1100"),
        ("mi300x", "gfx942"),
        ("b580", "xe 20.1"),
        ("m3 max", "metal"),
    ],
)
def test_a_card_is_found_by_the_name_that_people_use(opened: Browser, said: str, chip: str) -> None:
    assert opened.run(f"data.kinds[search({json.dumps(said)})[0].kind]") == chip


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("Radeon RX 7900 XTX", "torch 2.14.1+rocm7.2"),
        ("Radeon RX 6600 XT", "No build fits"),
        ("Arc B580", "torch 2.15.0+xpu"),
        ("M3 Max", "torch 2.15.0+cpu"),
    ],
)
def test_a_card_of_another_maker_needs_no_driver_and_survives_the_address(
    opened: Browser, place: Path, name: str, title: str
) -> None:
    opened.run("document.getElementById('search').focus()")
    opened.type(name)
    opened.press(*ENTER)
    shown = opened.run("[state.cards[0].name, document.querySelector('#answer h2').textContent]")
    said = opened.run("written()")
    opened.open(f"{place.as_uri()}#{said}")

    assert (shown[0], shown[1].partition(" · ")[0]) == (name, title)
    assert opened.run("[state.cards[0].name, document.querySelector('#answer h2').textContent]") == shown
    assert "{" not in opened.run("document.getElementById('answer').textContent")


@pytest.mark.parametrize(
    ("gpu", "kind"),
    [
        ({"name": "AMD Radeon RX 7600", "vendor": "amd", "architecture": "gfx1102"}, "gfx1102"),
        ({"name": "Intel Graphics", "vendor": "intel", "architecture": "xe 20.1.4"}, "xe 20.1"),
        ({"name": "Apple M3", "vendor": "apple", "architecture": "metal 3"}, "metal"),
    ],
)
def test_a_probe_document_of_another_maker_is_read(opened: Browser, gpu: dict[str, str], kind: str) -> None:
    document = {"schema": "gpuinstall.machine/1", "os": "linux", "arch": "x86_64"}
    found = pasted(opened, json.dumps({**document, "gpus": [{**gpu, "index": 0, "compute_capability": None}]}))

    assert [opened.run("data.kinds")[card["kind"]] for card in found["cards"]] == [kind]


def test_beside_a_card_of_nvidias_the_processors_graphics_are_left_out_with_a_word(opened: Browser) -> None:
    gpus = [
        {"index": 0, "name": "NVIDIA GeForce RTX 4090", "compute_capability": "8.9"},
        {"index": 1, "name": "AMD Raphael", "compute_capability": None, "vendor": "amd", "architecture": "gfx1036"},
    ]
    document = {"schema": "gpuinstall.machine/1", "os": "linux", "arch": "x86_64", "gpus": gpus}
    found = pasted(opened, json.dumps({**document, "driver": {"version": "580.95.05"}}))

    assert [card["name"] for card in found["cards"]] == ["GeForce RTX 4090"]
    assert "for one maker" in found["said"]
    assert opened.run("document.querySelector('#answer h2').textContent").startswith("torch ")


def test_a_name_of_two_makers_is_the_one_whose_brand_is_said(opened: Browser) -> None:
    assert opened.run("[cardOf('M4'), data.kinds[cardOf('Tesla M4').kind]]") == [None, "5.2"]


def test_the_address_has_all_that_was_said(opened: Browser, place: Path) -> None:
    opened.run(
        "changed({cards: [cardOf('GeForce RTX 4090'), cardOf('GeForce RTX 4090')], mode: 'typed', driver: '535.1'})"
    )
    opened.run("changed({packages: 2, python: 1})")
    said, title = opened.run("[written(), document.querySelector('#answer h2').textContent]")
    opened.open(f"{place.as_uri()}#{said}")

    assert opened.run("[written(), document.querySelector('#answer h2').textContent]") == [said, title]
    assert opened.run("state.cards.length") == 2


def test_the_back_button_takes_back_what_was_said_last(opened: Browser) -> None:
    opened.run("changed({cards: [cardOf('GeForce RTX 4090')]}); changed({packages: 2})")
    opened.run("new Promise((done) => { addEventListener('popstate', () => done()); history.back(); })")

    assert opened.run("[state.cards.length, state.packages, at('packages').value]") == [1, 0, "0"]


def test_what_the_page_has_no_answer_for_is_left_to_a_command_that_has(opened: Browser) -> None:
    title, said, _ = opened.run(f"({SHOW})(['gpu=sm_120&gpu=sm_89&gpu=sm_61&driver=580.95.05&os=linux'])")[0]
    program, *words = shlex.split(opened.run("document.querySelector('#answer pre').textContent"))

    assert title == "This page has no answer for that"
    assert "torch" not in said
    assert (program, gpuinstall(*words).status) == ("gpuinstall", 0)


def test_nothing_is_asked_of_anyone(opened: Browser, place: Path) -> None:
    opened.requests.clear()
    opened.open(place.as_uri())
    opened.run(f"({SHOW})(['gpu=GeForce+RTX+4090&driver=580.95.05'])")

    assert {request.partition("#")[0] for request in opened.requests} - {"about:blank"} == {place.as_uri()}


def test_a_phone_needs_no_sideways_scrolling_and_everything_has_a_name(opened: Browser) -> None:
    opened.width(360)
    opened.run(f"({SHOW})(['gpu=GeForce+RTX+4090&gpu=sm_120&driver=570.86.15'])")

    assert opened.run("document.documentElement.scrollWidth") <= 360
    nameless = """[...document.querySelectorAll(
      'input, select, textarea, button, [role]:not([role=status])')].filter((each) =>
      !each.labels?.length && !each.ariaLabel && !each.textContent.trim() && !each.getAttribute('aria-labelledby'))
      .map((each) => each.outerHTML)"""
    assert opened.run(nameless) == []


@pytest.mark.network
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("pixels", [360, 1600])
def test_a_checker_of_accessibility_finds_nothing_serious(
    started: Browser, place: Path, tmp_path_factory: pytest.TempPathFactory, scheme: str, pixels: int
) -> None:
    script = axe(tmp_path_factory)
    started.scheme(scheme)
    started.width(pixels)
    found = {}
    for said in STATES:
        started.open(f"{place.as_uri()}#{said}")
        found[said] = serious(started, script)
    started.open(place.as_uri())
    started.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    started.run("document.getElementById('search').focus()")
    started.type("5090")
    found["searching"] = serious(started, script)

    assert found == {said: [] for said in (*STATES, "searching")}


def test_a_paste_that_cannot_be_read_leaves_no_old_answer_and_an_unknown_name_is_said_to_be_that(
    opened: Browser,
) -> None:
    pasted(opened, RECORDED[0].read_text("utf-8"))
    assert pasted(opened, "Segmentation fault")["cards"] == []
    opened.run("document.getElementById('search').focus()")
    opened.type("frobnicator 9000")
    assert "No card of this name is known" in opened.run("document.getElementById('search-help').textContent")
