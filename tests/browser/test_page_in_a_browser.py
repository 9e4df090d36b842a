"""The selector page in a browser."""

import json
import random
from urllib.parse import urlencode

import pytest
from tools.site.selector import PACKAGES, build_selector_page, list_gpu_kinds

from tests.frozen import frozen_catalog
from tests.lab.browser import CHROMIUM, browser
from tests.lab.forked import gpuinstall
from tests.lab.shared import once
from tests.unit.test_selector import SMALL, any_visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"
    ),
]
TAB, ENTER = ("Tab", 9), ("Enter", 13)
SHOW = """(hashes) => hashes.map((hash) => {
  document.getElementById("questions").reset();
  location.hash = hash; readAddress();
  const answer = document.getElementById("answer");
  const texts = (tag) => [...answer.querySelectorAll(tag)].map((each) => each.textContent);
  return { title: texts("h2")[0], text: answer.textContent, commands: texts("pre") };
})"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    def make(folder):
        folder.mkdir()
        (folder / "index.html").write_text(
            build_selector_page(frozen_catalog(), SMALL), encoding="utf-8"
        )

    return once(tmp_path_factory, "page", make) / "index.html"


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def opened(started, place):
    started.open(place.as_uri())
    return started


def address(visit):
    """Return the URL fragment that selects a visitor's choices."""
    kind = list_gpu_kinds(frozen_catalog())[visit.kind]
    name = f"{kind.cards[0]} ({kind.code})" if kind.code else kind.cards[0]
    driver = str(visit.driver) if visit.driver else ""
    return urlencode(
        {
            "gpu": name,
            "driver": driver,
            "os": visit.platform.key,
            "with": visit.packages,
        }
    )


def shown(page, addresses):
    return page.run(f"({SHOW})({json.dumps(addresses)})")


def test_selector_page_selects_same_builds_as_plan(opened):
    chance = random.Random(16)
    kinds = list_gpu_kinds(frozen_catalog())
    drawn = (any_visit(chance) for _ in range(60))
    # The page lists Apple's GPUs only for Macs.
    visits = [
        visit for visit in drawn if kinds[visit.kind].os in {None, visit.platform.os}
    ]
    wrong = []
    for visit, answer in zip(
        visits, shown(opened, [address(visit) for visit in visits]), strict=True
    ):
        words = ["plan", *PACKAGES[visit.packages], "--machine", "-", "--json"]
        document = json.loads(
            gpuinstall(*words, text=json.dumps(visit.machine.to_dict())).out
        )
        build = document["data"]["build"]
        title = "No build fits"
        if build:
            title = (
                f"torch {build['torch']}+{build['backend']} · Python {build['python']}"
            )
        pins = " ".join(build["requirements"]) if build else ""
        if answer["title"] != title or pins not in " ".join(answer["commands"]):
            wrong.append(address(visit))
    assert wrong == []


def test_gpu_is_found_by_its_common_names(opened):
    codes = {
        "5090": "sm_120",
        "gb10": "sm_121",
        "a100 sxm": "sm_80",
        "rtx 4060 laptop": "sm_89",
        "4060 la": "sm_89",
        "v100": "sm_70",
        "NVIDIA T4": "sm_75",
        "7900 xtx": "gfx1100",
        "mi300x": "gfx942",
        "b580": "xe 20.1",
        "m3 max": "metal",
    }
    found = opened.run(
        f"{json.dumps(list(codes))}.map((name) => data.kinds[search(name)[0].kind].code)"
    )

    assert dict(zip(codes, found, strict=True)) == codes
    assert opened.run("search('frobnicator 9000').length") == 0


def test_ambiguous_gpu_name_selects_no_gpu(opened):
    answer = shown(opened, ["gpu=GeForce+GTX+860M&driver=470.1"])[0]

    assert "torch" not in answer["text"]
    assert opened.run("document.querySelectorAll('#others button').length") > 1


def test_selector_page_parses_common_driver_version_formats(opened):
    versions = {
        "580": "580",
        "R535": "535",
        "535.183.01": "535.183.01",
        "32.0.15.6094": "560.94",
        "| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.4 |": "550.54.15",
        "12.4": None,
        "<img src=x>": None,
    }
    read = opened.run(f"{json.dumps(list(versions))}.map(driverOf)")

    assert dict(zip(versions, read, strict=True)) == versions


def test_gpu_selected_by_keyboard_is_restored_from_url(opened, place):
    opened.run("document.getElementById('gpu').focus()")
    opened.type("5090")
    opened.press(*TAB)
    opened.press(*ENTER)  # the first other GPU with this name
    chosen = opened.run("[location.hash, document.getElementById('gpu').value]")
    opened.open(f"{place.as_uri()}{chosen[0]}")

    assert "GeForce RTX 5090 D" in chosen[1]
    assert opened.run("document.getElementById('gpu').value") == chosen[1]
