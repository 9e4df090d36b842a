"""The stand-in index answers as the real one does."""

import re
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.lab.index import Habits, StandInIndex
from tests.lab.releases import catalog_index
from tests.lab.wheels import metadata_of

OURS = {"User-Agent": "test"}
WHEEL = "torch-2.14.1%2Bcu126-cp312-cp312-manylinux_2_28_x86_64.whl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The wheels of one release for one Python."""
    return catalog_index(tmp_path_factory.mktemp("served"), ["2.14.1"], pythons=("3.12",))


@pytest.fixture
def index(folder):
    """The stand-in with the habits of the real index."""
    with StandInIndex(folder) as index:
        yield index


def _get(url, method="GET", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return urlopen(Request(url, headers={**OURS, **named}, method=method), timeout=5)


def _refused(url, **headers):
    with pytest.raises(HTTPError) as caught:
        _get(url, **headers)
    caught.value.close()
    return caught.value.code


def test_package_page_is_html_whatever_is_accepted(index):
    with _get(
        f"{index.torch_index}/cu126/torch/", Accept="application/vnd.pypi.simple.v1+json"
    ) as page:
        assert page.headers["Content-Type"] == "text/html"
        assert page.headers["Cache-Control"] == "max-age=600"
        text = page.read().decode()
    assert "<h1>Links for torch</h1>" in text
    assert f'<a href="{index.r2.url}/whl/cu126/{WHEEL}"' in text
    assert "#sha256=" not in text
    assert re.search(r'data-core-metadata="sha256=[0-9a-f]{64}"', text)


@pytest.mark.parametrize(
    "path", ["/cu127/", "/cu126/cowsay/", "/cu127/torch/", "/cu126/torch-9.whl", "/../simple/x"]
)
def test_what_does_not_exist_is_denied_and_not_missing(path, index):
    assert _refused(index.torch_index + path) == 403


def test_file_host_denies_pythons_default_name(index):
    url = f"{index.r2.url}/whl/cu126/{WHEEL}"
    assert _refused(url, User_Agent="Python-urllib/3.12") == 403
    with _get(url) as answer:
        assert answer.status == 200


def test_file_is_served_whole_in_parts_and_by_its_head(index):
    url = f"{index.r2.url}/whl/cu126/{WHEEL}"
    with (
        _get(url) as whole,
        _get(url, Range="bytes=-100") as end,
        _get(url, Range="bytes=0-9") as start,
    ):
        body = whole.read()
        assert (end.status, end.read()) == (206, body[-100:])
        assert (start.headers["Content-Range"], start.read()) == (
            f"bytes 0-9/{len(body)}",
            body[:10],
        )
    with _get(url, "HEAD") as head:
        assert (head.headers["Content-Length"], head.read()) == (str(len(body)), b"")
    assert index.sent() == {WHEEL.replace("%2B", "+"): len(body) + 110}


def test_page_with_a_known_mark_is_not_sent_again(index):
    url = f"{index.torch_index}/cu126/torch/"
    with _get(url) as page:
        mark = page.headers["ETag"]
    assert _refused(url, If_None_Match=mark) == 304


def test_metadata_lies_beside_the_wheel(index, folder):
    with _get(f"{index.r2.url}/whl/cu126/{WHEEL}.metadata") as answer:
        text = answer.read()
    assert text == metadata_of(folder / "whl" / "cu126" / WHEEL.replace("%2B", "+"))
    assert b"Requires-Dist: triton==3.8.0" in text


def test_dependencies_are_listed_with_the_addresses_of_the_default_index(
    index,
):
    with _get(f"{index.torch_index}/cu126/filelock/") as page:
        assert f'href="{index.default.url}/files/filelock-' in page.read().decode()


def test_default_index_speaks_json_with_hashes_and_wants_its_login(folder):
    with StandInIndex(folder, Habits(credentials="me:secret")) as index:
        url = f"{index.default.url}/simple/numpy/"
        assert _refused(url) == 401
        login = {
            "Authorization": "Basic bWU6c2VjcmV0",
            "Accept": "application/vnd.pypi.simple.v1+json",
        }
        with _get(url, **login) as page:
            assert page.headers["Content-Type"] == "application/vnd.pypi.simple.v1+json"
            assert b'"sha256"' in page.read()
