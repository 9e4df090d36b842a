"""The client against hosts on loopback that mean ill, with little patience."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import formatdate

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.patience import Patience
from gpuinstall.sources.web import Client, UnreachableError
from gpuinstall.sources.web.client import AGAIN_S
from tests.lab.host import Answer, Host
from tests.lab.pace import within

PATIENCE = Patience(silence=0.4, floor=1000)
FILE = b"wheel" * 1000


def drip(sent):
    for position in range(len(sent)):
        yield sent[position : position + 1]
        time.sleep(0.1)


def stall(sent):
    yield sent[:10]
    time.sleep(20)


def endless(sent):
    while True:
        yield sent * 100


@pytest.fixture
def client(tmp_path):
    with Client(cache=tmp_path / "cache", patience=PATIENCE) as client:
        yield client


@contextmanager
def host(respond):
    served = Host("hostile", respond)
    yield served
    served.close()


def sending(pieces, length=None):
    return lambda *_: Answer(
        200, FILE, "text/html", {"Content-Length": str(length or len(FILE))}, pieces
    )


@pytest.mark.parametrize(
    ("pieces", "said"), [(drip, "sent less than"), (stall, "sent nothing for")]
)
def test_a_page_that_comes_too_slowly_is_given_up(client, pieces, said):
    with (
        host(sending(pieces)) as served,
        within(3),
        pytest.raises(InstallationError, match=said) as caught,
    ):
        client.page(f"{served.url}/page/")
    assert caught.value.code == "too-slow"
    assert "GPUINSTALL_SILENCE" in (caught.value.hint or "")


def test_a_page_without_end_is_given_up(client, monkeypatch):
    monkeypatch.setattr("gpuinstall.sources.web.client.PAGE_BYTES", 1_000_000)
    with (
        host(sending(endless, 10**12)) as served,
        pytest.raises(InstallationError, match="more than 1 MB"),
    ):
        client.page(f"{served.url}/page/")


def test_a_page_that_keeps_the_pace_for_ever_is_given_up(client):
    def steadily(sent):
        while True:
            yield sent
            time.sleep(0.05)

    with (
        host(sending(steadily, 10**12)) as served,
        within(8),
        pytest.raises(InstallationError, match="not done after"),
    ):
        client.page(f"{served.url}/page/")


def test_headers_that_come_in_drops_are_not_waited_for(client):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(
            client.page, f"http://127.0.0.1:{server.getsockname()[1]}/page/"
        )
        connection, _ = server.accept()
        with connection, within(3):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not asked.done():
                connection.sendall(b"x")
                time.sleep(0.1)
    assert isinstance(asked.exception(), UnreachableError)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("when", [lambda: "0", lambda: formatdate(time.time() - 1)])
def test_a_busy_host_is_asked_again_when_it_says(tmp_path, status, when):
    replies = iter(
        [
            Answer(status, b"later", headers={"Retry-After": when()}),
            Answer(200, b"now", "text/html"),
        ]
    )
    start = time.monotonic()
    # Both answers are to come, on a busy machine too.
    client = Client(cache=tmp_path / "cache", patience=Patience())
    with client, host(lambda *_: next(replies)) as served:
        page = client.page(f"{served.url}/page/")
    assert page is not None
    assert page.text == "now"
    assert time.monotonic() - start >= AGAIN_S


@pytest.mark.parametrize("when", ["3600", "0.", "soon", ""])
def test_a_host_that_is_busy_for_longer_is_not_waited_for(client, when):
    with (
        host(lambda *_: Answer(503, b"later", headers={"Retry-After": when})) as served,
        within(2),
    ):
        with pytest.raises(UnreachableError, match="cannot be reached"):
            client.page(f"{served.url}/page/")
        assert len(served.log) == 1


def test_a_host_that_asks_for_time_again_and_again_is_given_up(client):
    busy = Answer(429, b"later", headers={"Retry-After": "0"})
    with (
        host(lambda *_: busy) as served,
        within(4),
        pytest.raises(InstallationError, match="answered 429"),
    ):
        client.page(f"{served.url}/page/")
