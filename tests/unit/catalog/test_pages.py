"""Tests of parsing index pages."""

import json
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.catalog import pages
from gpuinstall.catalog.pages import parse_folder, parse_page, parse_sources
from gpuinstall.sources.web import Page

BASE = "https://index.example/whl/cu128/torch/"
SHA256, METADATA = "a" * 64, "b" * 64

OLD, NEW = (
    "torch-2.7.0+cu128-cp310-cp310-manylinux_2_28_aarch64.whl",
    "torch-2.11.0+cu128-cp313-cp313t-win_amd64.whl",
)
ATTRIBUTES = f'data-dist-info-metadata="sha256={METADATA}" data-core-metadata="sha256={METADATA}"'
PACKAGE_PAGE = f"""<!DOCTYPE html>
<html>
  <body>
    <h1>Links for torch</h1>
    <a href="/whl/cu128/{quote(OLD)}" {ATTRIBUTES}>{OLD}</a><br/>
    <a href="https://files.example/whl/cu128/{quote(NEW)}#sha256={SHA256}" data-upload-time="2026-03-23">{NEW}</a><br/>
  </body>
</html>
<!--TIMESTAMP 1793199792-->"""


def _html(text, backend="cu128"):
    return parse_page(
        Page(text, "text/html", BASE),
        backend=backend,
        source="https://index.example/whl/cu128",
    )


def _link(href):
    return _html(f'<a href="{href}">x</a>')


def _json(document):
    return parse_page(
        Page(json.dumps(document), "application/vnd.pypi.simple.v1+json", BASE),
        backend="cu128",
    )


def test_relative_and_absolute_page_links_are_resolved():
    relative, absolute = _html(PACKAGE_PAGE)
    assert relative.url == (
        "https://index.example/whl/cu128/torch-2.7.0%2Bcu128-cp310-cp310-manylinux_2_28_aarch64.whl"
    )
    assert (relative.sha256, relative.metadata, relative.metadata_sha256) == (
        None,
        True,
        METADATA,
    )
    assert absolute.url.startswith("https://files.example/whl/cu128/")
    assert absolute.filename == NEW
    assert (absolute.sha256, absolute.metadata, absolute.metadata_sha256) == (
        SHA256,
        False,
        None,
    )
    assert {wheel.source for wheel in (relative, absolute)} == {
        "https://index.example/whl/cu128"
    }


def test_html_entity_for_plus_is_decoded():
    (wheel,) = _link("torch-2.7.0&#43;cu126-cp312-cp312-manylinux_2_28_x86_64.whl")
    assert (str(wheel.version), wheel.backend) == ("2.7.0+cu126", "cu126")
    assert wheel.url == f"{BASE}torch-2.7.0+cu126-cp312-cp312-manylinux_2_28_x86_64.whl"


def test_unlabeled_wheel_uses_backend_of_its_page():
    (wheel,) = _link("torch-2.5.1-cp312-cp312-linux_aarch64.whl")
    assert wheel.backend == "cu128"


def test_json_page_provides_hashes_and_yanked_status():
    name = "torch-2.14.1+cu128-cp312-cp312-win_amd64.whl"
    file = {"filename": name, "url": name, "hashes": {"sha256": SHA256}}
    (wheel,) = _json(
        {
            "files": [
                file | {"core-metadata": {"sha256": METADATA}, "yanked": False},
                file | {"yanked": "broken"},
            ]
        }
    )
    assert wheel.url == f"{BASE}{name}"
    assert (wheel.sha256, wheel.metadata, wheel.metadata_sha256) == (
        SHA256,
        True,
        METADATA,
    )


def test_folder_lists_wheels_as_file_urls():
    (wheel,) = parse_folder(
        ["notes.txt", "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl"],
        Path("/wheels"),
        "/wheels",
    )
    assert wheel.url == "file:///wheels/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl"
    assert (wheel.backend, wheel.source) == ("cpu", "/wheels")


@pytest.mark.parametrize(
    "href",
    [
        "",
        "torch/",
        "torch-2.0.tar.gz",
        "torch.whl",
        "torch-banana-cp312-cp312-win_amd64.whl",
        "http://[/torch-2.0-cp312-cp312-win_amd64.whl",
        "file:///etc/torch-2.0-cp312-cp312-win_amd64.whl",
        "javascript:torch-2.0-cp312-cp312-win_amd64.whl",
        f"torch-{'9' * 5000}-cp312-cp312-win_amd64.whl",
        f"torch-2.0-{'cp3.' * 500}cp3-none-any.whl",
    ],
)
def test_links_to_other_files_are_ignored(href):
    assert _link(href) == ()


@pytest.mark.parametrize(
    "name", ["..%2F..%2Ftorch-2.0-py3-none-any.whl", "..%5Ctorch-2.0-py3-none-any.whl"]
)
def test_unsafe_file_name_is_rejected(name):
    with pytest.raises(InstallationError, match="unsafe name"):
        _link(f"https://files.example/whl/{name}")


JSON = "application/vnd.pypi.simple.v1+json"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"files": 3}',
        '{"files": [{"filename": "x.whl"}]}',
    ],
)
def test_malformed_page_is_rejected(text):
    with pytest.raises(InstallationError, match="not a package index"):
        parse_page(Page(text, JSON, BASE))


@pytest.mark.parametrize("is_html", [True, False])
def test_number_of_links_is_limited(monkeypatch, is_html):
    files = [{"filename": name, "url": name, "hashes": {}} for name in (OLD, NEW)]
    parse = (
        partial(_html, f"{PACKAGE_PAGE} ")
        if is_html
        else partial(_json, {"files": files})
    )
    monkeypatch.setattr(pages, "_MAX_LINKS", 1)
    with pytest.raises(InstallationError):
        parse()
    monkeypatch.setattr(pages, "_MAX_LINKS", 2)
    assert len(parse()) == 2


def test_sdist_versions_are_read_from_file_names():
    names = (
        "natten-0.14.2.post4.tar.gz",
        "natten-0.20.1.zip",
        "other-9.0.tar.gz",
        "natten-rest",
    )
    text = "".join(f'<a href="{name}">{name}</a>' for name in names)
    releases = parse_sources(Page(text, "text/html", BASE), "natten")
    assert [str(release.version) for release in releases] == ["0.14.2.post4", "0.20.1"]


def test_page_with_a_lone_surrogate_is_parsed():
    filler = [{"url": f"x-{number}.zip", "filename": "x"} for number in range(100)]
    file = {
        "url": "torch-3.0-py3-none-any.whl",
        "filename": OLD,
        "requires-python": "\ud800",
    }
    [wheel] = _json({"files": [*filler, file]})
    assert wheel.filename == OLD
