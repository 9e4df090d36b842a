"""Allowed sources of a lock's files."""

import sys
from pathlib import Path

import pytest

from gpuinstall.base.cache import JsonCache
from gpuinstall.base.reporter import Reporter
from gpuinstall.lock.file.lock import LockedFile
from gpuinstall.lock.request.lock_sources import find_unknown_hosts
from gpuinstall.sources import Sources
from gpuinstall.sources.session import Session
from gpuinstall.sources.web import Client, FileHash
from tests.lab.host import NOT_FOUND, Answer, Host

SDIST = "https://files.example/early-1.0.tar.gz"


def _answer(path, _headers):
    page = Answer(body=f'<a href="{SDIST}">x</a>'.encode(), content_type="text/html")
    return page if path == "/simple/early/" else NOT_FOUND


@pytest.fixture
def session(tmp_path):
    host = Host("index", _answer)
    sources = Sources(f"{host.url}/whl", default_index=f"{host.url}/simple")
    with Client() as client:
        yield Session(
            sources,
            client,
            JsonCache(tmp_path, FileHash),
            {},
            Path(sys.executable),
            Reporter(),
            tmp_path,
        )
    host.close()


def test_host_of_a_listed_sdist_is_accepted(session):
    files = [
        LockedFile("early", SDIST),
        LockedFile("late", SDIST.replace("early", "late")),
    ]
    strange = [find_unknown_hosts([file], "cpu", session) for file in files]
    assert strange == [{}, {"https://files.example:443": ["late"]}]


@pytest.mark.parametrize(
    ("server", "is_accepted"),
    [
        ("https://download.pytorch.org", True),
        ("http://download.pytorch.org", False),
        ("https://download.pytorch.org:8443", False),
    ],
)
def test_pytorch_hosts_are_accepted_only_with_https(session, server, is_accepted):
    file = LockedFile("early", f"{server}/early-2.0-py3-none-any.whl")
    assert (find_unknown_hosts([file], "cpu", session) == {}) is is_accepted
