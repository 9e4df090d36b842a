"""The relay between uv and hosts: only complete files count."""

import hashlib
import os
import socket
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress

import pytest
import requests

from gpuinstall.sources.relay import Relay
from gpuinstall.sources.web import Client
from tests.lab.host import Answer, Host
from tests.lab.pace import within

NAME = "torch-2.14.1+cu126-py3-none-any.whl"
SMALL = os.urandom(100_000)
LARGE = os.urandom(2_000_000)


class Passed:
    """A relay to a host, with counted bytes."""

    def __init__(self, client, respond):
        self.counted: Counter[str] = Counter()
        self.host = Host("files", respond)
        self.hashes: dict[str, str] = {}
        self.relay = Relay(client, self.count, self.hashes.__setitem__)

    def count(self, part, size):
        self.counted[part] += size

    def fetch(self, size=None, *, hashed=False, times=1):
        """Fetch the file as uv does, with retries."""
        address = self.relay.add_file(
            f"{self.host.url}/{NAME}", NAME, size, hashed=hashed
        )
        for _ in range(times - 1):
            with suppress(requests.RequestException):
                return get(address)
        return get(address)

    @property
    def sent(self):
        return sum(asked.sent for asked in self.host.log)


def get(address):
    answer = requests.get(address, timeout=10, allow_redirects=False)
    answer.raise_for_status()
    return answer.content


@pytest.fixture
def passed(tmp_path):
    begun: list[Passed] = []
    with Client(cache=tmp_path) as client:

        def begin(respond):
            begun.append(Passed(client, respond))
            begun[-1].relay.__enter__()
            return begun[-1]

        yield begin
        for each in begun:
            each.relay.__exit__()
            each.host.close()


def serving(body):
    return lambda *_: Answer(200, body)


@pytest.mark.parametrize("body", [SMALL, LARGE, b""])
@pytest.mark.parametrize("size_known", [True, False])
def test_relayed_download_is_counted_and_hashed(passed, body, *, size_known):
    way = passed(serving(body))
    assert way.fetch(len(body) if size_known else None) == body
    assert way.hashes == {f"{way.host.url}/{NAME}": hashlib.sha256(body).hexdigest()}
    assert way.counted[NAME] == way.sent == len(body)
    assert way.relay.failure is None


def test_relayed_download_with_known_hash_is_not_hashed(passed):
    way = passed(serving(LARGE))
    assert way.fetch(len(LARGE), hashed=True) == LARGE
    assert way.hashes == {}


def test_interrupted_transfer_is_retried(passed):
    whole = iter([False, True])

    def once(body):
        yield body if next(whole) else body[:500]

    way = passed(
        lambda *_: Answer(200, SMALL, headers={"Connection": "close"}, pieces=once)
    )
    assert way.fetch(len(SMALL), times=2) == SMALL
    assert way.counted[NAME] == len(SMALL)
    assert way.relay.failure is not None


def endless(body):
    while True:
        yield body


def test_file_with_wrong_size_fails(passed):
    declared = {"Content-Length": str(10**12)}
    way = passed(lambda *_: Answer(200, SMALL, headers=declared, pieces=endless))
    with pytest.raises(requests.RequestException):
        way.fetch(len(SMALL), times=3)
    assert len(way.host.log) == 1, "who failed so is not asked again"
    assert way.relay.failure is not None
    assert way.relay.failure.code == "too-large"
    assert way.hashes == {}
    assert way.counted[NAME] == 0


def test_partial_file_of_unknown_size_fails(
    passed,
):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reset():
            connection, _ = server.accept()
            connection.recv(10_000)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwheel\r\n"
            )
            connection.close()

        threading.Thread(target=reset, daemon=True).start()
        way = passed(serving(b""))
        port = server.getsockname()[1]
        address = way.relay.add_file(
            f"http://127.0.0.1:{port}/{NAME}", NAME, None, hashed=False
        )
        with pytest.raises(requests.RequestException):
            get(address)
    assert way.hashes == {}


def test_relay_rejects_urls_without_secret(
    passed,
):
    way = passed(serving(SMALL))
    address = way.relay.add_file(f"{way.host.url}/{NAME}", NAME, None, hashed=True)
    secret, _, name = address.partition("//")[2].partition("/")[2].partition("/")
    assert len(secret) >= 20
    base = address.partition(f"/{secret}")[0]
    for path in (
        f"/{name}",
        f"/{secret[:-1]}/{name}",
        f"/{secret}/../{name}",
        f"/{way.host.url}/{name}",
    ):
        assert requests.get(base + path, timeout=10).status_code == 404
    assert way.host.log == []


@contextmanager
def closed_after(seconds, way):
    timer = threading.Timer(seconds, way.relay.__exit__)
    timer.start()
    yield
    timer.join()


def test_closing_relay_cancels_transfers(passed):
    def steadily(body):
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]
            time.sleep(0.05)

    way = passed(lambda *_: Answer(200, SMALL, pieces=steadily))
    with within(3), closed_after(0.3, way), pytest.raises(requests.RequestException):
        way.fetch(len(SMALL))
