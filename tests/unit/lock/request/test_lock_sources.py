"""Allowed sources of a lock's files."""

import sys
from pathlib import Path

from gpuinstall.base.reporter import Reporter
from gpuinstall.lock.file.lock import LockedFile
from gpuinstall.lock.request.lock_sources import strange_hosts
from gpuinstall.sources import Sources
from gpuinstall.sources.session import Session
from gpuinstall.sources.web import AnswerCache, Client, FileHash
from tests.lab.host import NOT_FOUND, Answer, Host

SDIST = "https://files.example/early-1.0.tar.gz"


def test_host_of_a_listed_sdist_is_accepted(tmp_path):
    page = Answer(body=f'<a href="{SDIST}">x</a>'.encode(), content_type="text/html")

    def answer(path, _headers):
        return page if path == "/simple/early/" else NOT_FOUND

    host = Host("index", answer)
    sources = Sources(f"{host.url}/whl", default_index=f"{host.url}/simple")
    files = [
        LockedFile("early", SDIST),
        LockedFile("late", SDIST.replace("early", "late")),
    ]
    with Client() as client:
        session = Session(
            sources,
            client,
            AnswerCache(tmp_path, FileHash),
            {},
            Path(sys.executable),
            Reporter(),
            tmp_path,
        )
        strange = [strange_hosts([file], "cpu", session) for file in files]
    host.close()
    assert strange == [{}, {"https://files.example:443": ["late"]}]
