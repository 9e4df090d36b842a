"""Allowed sources of a lock's files."""

import sys
from pathlib import Path

import pytest

from gpuinstall.base.reporter import Reporter
from gpuinstall.lock.file.lock import LockedFile
from gpuinstall.lock.request.lock_sources import find_unknown_hosts
from gpuinstall.sources import Sources
from gpuinstall.sources.addresses import Addresses
from gpuinstall.sources.session import Session
from gpuinstall.sources.web import Client
from tests.lab.host import NOT_FOUND, Answer, Host

SDIST = "https://files.example/early-1.0.tar.gz"


def _answer(path, _headers):
    page = Answer(body=f'<a href="{SDIST}">x</a>'.encode(), content_type="text/html")
    return page if path == "/simple/early/" else NOT_FOUND


@pytest.fixture
def host():
    host = Host("index", _answer)
    yield host
    host.close()


@pytest.fixture
def session(tmp_path, host):
    sources = Sources(Addresses(f"{host.url}/whl", default_index=f"{host.url}/simple"))
    with Client(cache=tmp_path) as client:
        yield Session(
            sources,
            client,
            {},
            Path(sys.executable),
            Reporter(),
            tmp_path,
        )


def test_host_of_a_listed_sdist_is_accepted(session):
    files = [
        LockedFile("late", SDIST.replace("early", "late")),
        LockedFile("early", SDIST),
    ]
    strange = [
        find_unknown_hosts([file], "cpu", session.sources, session.client)
        for file in files
    ]
    assert strange == [{"https://files.example:443": ["late"]}, {}]


def test_one_page_is_requested_per_host(session, host):
    strange = "https://stranger.example/{}-1.0-py3-none-any.whl"
    files = [LockedFile(f"x{n}", strange.format(f"x{n}")) for n in range(100)]
    files += [LockedFile("early", SDIST), LockedFile("another", SDIST)]

    found = find_unknown_hosts(files, "cpu", session.sources, session.client)

    assert [*found] == ["https://stranger.example:443"]
    assert len(host.log) == 2


def test_linked_host_is_recorded_in_cache(session, host):
    find_unknown_hosts(
        [LockedFile("early", SDIST)], "cpu", session.sources, session.client
    )
    host.log.clear()

    late = LockedFile("late", SDIST.replace("early", "late"))
    assert find_unknown_hosts([late], "cpu", session.sources, session.client) == {}
    assert host.log == []
    other = session.sources.with_default_index(f"{host.url}/other")
    assert find_unknown_hosts([late], "cpu", other, session.client)


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
    assert (
        find_unknown_hosts([file], "cpu", session.sources, session.client) == {}
    ) is is_accepted
