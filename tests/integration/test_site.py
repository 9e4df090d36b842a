"""Tests of the documentation site, built from a clone."""

import os
import re
import shutil

import pytest

from gpuinstall.catalog.failures.table import load_failures
from tests.contract.test_tracked_files import project_files
from tests.lab.browser import CHROMIUM, browser
from tests.lab.clone import ROOT
from tests.lab.links import find_broken_links, html
from tests.lab.processes import succeed
from tests.lab.shared import once

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.network,
    pytest.mark.skipif(not shutil.which("make"), reason="make is not installed"),
]
seen = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"
)
FOUND = "[...document.querySelectorAll('#search-results li a')].map((each) => each.getAttribute('href'))"
ENDED = """new Promise((done) => { const look = () =>
  document.querySelector("#search-results .search-summary")?.textContent.match(/finished|did not match/) ? done()
    : setTimeout(look, 50); look(); })"""


def clone(folder):
    """Copy the tracked files, and build the site from them."""
    for file in project_files():
        place = folder / file.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, place)
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    succeed(["make", "site"], cwd=folder, env=own)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return once(tmp_path_factory, "clone", clone) / "site"


@pytest.fixture
def shown(tmp_path):
    with browser(tmp_path / "profile") as running:
        yield running


def test_every_failure_has_a_page(site):
    pages = {
        identity: (site / "failures" / f"{identity}.html").read_text("utf-8")
        for identity in load_failures()
    }

    assert [
        identity for identity, text in pages.items() if f"<h1>{identity} " not in text
    ] == []


def test_every_link_has_a_target(site):
    assert find_broken_links(sorted(site.resolve().rglob("*.html")), html) == []


def test_site_loads_no_external_resources(site):
    loads = re.compile(
        r"""<(?:script|img|iframe)[^>]*src=["']?(?:https?:)?//|<link[^>]*href=["']?(?:https?:)?//"""
    )
    text = {page: page.read_text("utf-8") for page in site.rglob("*.html")}

    assert [page for page, said in text.items() if loads.search(said)] == []
    assert [
        page
        for page in site.rglob("*.css")
        if re.search(r"url\(['\"]?(https?:)?//", page.read_text())
    ] == []


@seen
def test_site_search_finds_error_messages_offline(site, shown):
    shown.open(f"{site.as_uri()}/search.html?q=no+kernel+image")
    shown.run(ENDED)

    assert any("F37.html" in address for address in shown.run(FOUND)[:3])
    assert [
        address for address in shown.requests if address.startswith(("http", "ws"))
    ] == []
