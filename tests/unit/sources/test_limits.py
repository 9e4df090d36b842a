"""The client with slow and malicious hosts."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import formatdate

import pytest

from gpuinstall.base.errors import InstallationError, UnreachableError
from gpuinstall.base.timeouts import Timeouts
from gpuinstall.sources.web import Client
from tests.lab.host import Answer, Host
from tests.lab.pace import within

FILE = b"wheel" * 1000


class ShortAnswer(Timeouts):
    """Default limits with a short time until the response."""

    answer = 0.8


class ShortPage(Timeouts):
    """Default limits with a short time for a whole page."""

    page = 0.5


def stall(sent):
    yield sent[:10]
    time.sleep(20)


def endless(sent):
    while True:
        yield sent * 100


@pytest.fixture
def client(tmp_path):
    with Client(cache=tmp_path / "cache") as client:
        yield client


@contextmanager
def host(respond):
    served = Host("hostile", respond)
    yield served
    served.close()


def given_up(respond, timeouts, cache):
    """Return why a page is abandoned.

    On a busy machine, a host may start too late, so up to nine clients try.
    """
    for _ in range(9):
        with (
            host(respond) as served,
            Client(cache=cache, timeouts=timeouts) as client,
            pytest.raises(InstallationError) as caught,
        ):
            client.page(f"{served.url}/page/")
        if not isinstance(caught.value, UnreachableError):
            break
    return caught.value


def sending(pieces, length):
    return lambda *_: Answer(
        200, FILE, "text/html", {"Content-Length": str(length)}, pieces
    )


def steadily(sent):
    while True:
        yield sent
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("pieces", "timeouts", "said"),
    [
        (stall, Timeouts(silence=0.4), "stopped sending data"),
        (steadily, ShortPage(), "did not finish within"),
    ],
)
def test_slow_page_is_aborted(tmp_path, pieces, timeouts, said):
    with within(4):
        error = given_up(sending(pieces, 10**6), timeouts, tmp_path)
    assert said in error.message
    assert error.code == "too-slow"
    assert "GPUINSTALL_SILENCE" in (error.hint or "")


def test_unbounded_page_is_aborted(client, monkeypatch):
    monkeypatch.setattr("gpuinstall.sources.web.PAGE_BYTES", 1_000_000)
    with (
        host(sending(endless, 10**12)) as served,
        pytest.raises(InstallationError, match="larger than 1 MB"),
    ):
        client.page(f"{served.url}/page/")


def test_slow_headers_are_aborted(tmp_path):
    with (
        Client(cache=tmp_path, timeouts=ShortAnswer()) as client,
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


def test_busy_or_failing_host_is_retried(client):
    past = {"Retry-After": formatdate(time.time() - 1)}
    for trouble in (
        [Answer(429, b"later", headers={"Retry-After": "0"})],
        [Answer(503, b"later", headers=past)],
        [Answer(502, b""), Answer(500, b"")],
    ):
        replies = iter([*trouble, Answer(200, b"now", "text/html")])
        with host(lambda *_, replies=replies: next(replies)) as served:
            page = client.page(f"{served.url}/page/")
        assert page is not None
        assert page.text == "now"


@pytest.mark.parametrize("when", ["3600", "0.", "soon", ""])
def test_long_retry_after_is_not_retried(tmp_path, when):
    with (
        host(lambda *_: Answer(503, b"later", headers={"Retry-After": when})) as served,
        Client(cache=tmp_path, timeouts=ShortAnswer()) as client,
        within(3),
    ):
        with pytest.raises(UnreachableError, match="cannot be reached"):
            client.page(f"{served.url}/page/")
        assert len(served.log) == 1


def test_repeatedly_busy_host_is_abandoned(tmp_path):
    busy = Answer(429, b"later", headers={"Retry-After": "0"})
    with within(4):
        error = given_up(lambda *_: busy, Timeouts(), tmp_path)
    assert "returned HTTP status 429" in error.message
