"""Range requests to unusual servers."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest

from gpuinstall.wheels.ranges import WheelError
from gpuinstall.wheels.torch_wheel import read_torch
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.host import Answer
from tests.unit.wheels.made import (
    ROW,
    TORCH_WHEEL,
    over_http,
    server,
    serving,
)


def _read(url, **how):
    with over_http(url, **how) as ranges:
        return read_torch(WheelReader(ranges)).architectures


def _failure(url, **how):
    with pytest.raises(WheelError) as caught:
        _read(url, **how)
    return caught.value


def _partial(body, span, **headers):
    return Answer(206, body, headers={"Content-Range": span} | headers)


def test_wheel_is_not_downloaded_without_range_support():
    big = b"x" * (64 << 20)
    with server(serving(big, **{"Accept-Ranges": "none"})) as host:
        assert _failure(host.url).code == "no-ranges"
        time.sleep(0.2)
        assert [asked.status for asked in host.log] == [200]
        assert host.log[0].sent < len(big) // 2


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(404), "http-status"),
        (Answer(416, headers={"Content-Range": "bytes */0"}), "http-status"),
        (Answer(501), "http-status"),
        (_partial(b"P", "bytes 1-1/100"), "wrong-range"),
        (_partial(b"P", "bytes 1-0/100"), "wrong-range"),
        (_partial(b"P", "bytes 0-1/100"), "wrong-range"),
        (_partial(b"PK", "bytes 0-0/100"), "wrong-range"),
        (_partial(b"P", "bytes 0-0/*"), "wrong-range"),
        (_partial(b"P", "nonsense"), "wrong-range"),
        (_partial(b"P", "bytes 0-0/" + "9" * 5000), "wrong-range"),
        (
            _partial(b"P", "bytes 0-0/100", **{"Content-Encoding": "gzip"}),
            "wrong-range",
        ),
        (Answer(206, b"P", "multipart/byteranges; boundary=x"), "wrong-range"),
    ],
)
def test_wrong_range_is_rejected(answer, code):
    with server(lambda *_: answer) as host:
        assert _failure(host.url).code == code
        # Some servers do not support a range without a start.
        assert len(host.log) == (2 if answer.status in {416, 501} else 1)


def test_wheel_is_read_without_suffix_ranges():
    serve = serving(TORCH_WHEEL)

    def respond(path, headers):
        is_suffix = headers["range"].startswith("bytes=-")
        return Answer(501) if is_suffix else serve(path, headers)

    with server(respond) as host:
        assert _read(host.url)


def test_file_that_changes_during_reading_is_rejected():
    versions = iter([TORCH_WHEEL, TORCH_WHEEL, TORCH_WHEEL + b"x"])
    with server(lambda *_: Answer(body=next(versions))) as host:
        assert _failure(host.url).code == "wrong-range"


def test_error_contains_no_credentials_or_url():
    with server(serving(TORCH_WHEEL, **{"Accept-Ranges": "none"})) as host:
        error = _failure(
            f"{host.url}/a.whl?signature=geheim".replace("//", "//me:geheim@")
        )
    assert "geheim" not in f"{error.message} {error.evidence} {error.why} {error.hint}"


def test_redirect_to_known_host_drops_credentials():
    with server(serving(TORCH_WHEEL)) as there:
        there_host = there.url.partition("//")[2]
        moved = Answer(302, headers={"Location": f"{there.url}/b.whl"})
        with server(lambda *_: moved) as here:
            assert _read(f"{here.url}/a.whl", hosts=(there_host,)) == ROW
            assert _failure(f"{here.url}/a.whl").code == "foreign-redirect"
        assert len(here.log) == 2
    assert here.log[0].headers["authorization"].startswith("Basic")
    assert len(there.log) == 3
    assert not any("authorization" in asked.headers for asked in there.log)


@pytest.mark.parametrize(
    "location",
    [
        "https://127.0.0.1:1/a",
        "ftp://127.0.0.1/a",
        "file:///etc/passwd",
        "//other.example/a",
        "//127.0.0.1/a",
    ],
)
def test_redirect_to_another_origin_is_rejected(location):
    with server(lambda *_: Answer(301, headers={"Location": location})) as host:
        assert _failure(host.url).code == "foreign-redirect"


def test_second_redirect_is_rejected():
    with server(lambda path, _: Answer(302, headers={"Location": f"{path}a"})) as host:
        assert _failure(f"{host.url}/a").code == "foreign-redirect"
        assert len(host.log) == 2


@contextmanager
def _raw(reply):
    """Serve TCP connections with ``reply``."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(connection):
        with connection:
            try:
                connection.recv(65536)
                reply(connection)
            except OSError:
                pass

    def accept():
        while True:
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/a.whl"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def _sending(head, drop=b"", pause=0.0):
    """Send a head, then endless pieces if there are any."""

    def reply(connection):
        connection.sendall(head)
        while drop:
            connection.sendall(drop)
            time.sleep(pause)

    return reply


_HEAD = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-0/65536\r\n"
_PIECE = b"P" * 0x8000


@pytest.mark.parametrize(
    ("reply", "seconds", "codes"),
    [
        # An endless body.
        (_sending(_HEAD + b"\r\n", _PIECE), 5.0, "wrong-range wheel-malformed"),
        (
            _sending(
                _HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
                b"8000\r\n" + _PIECE + b"\r\n",
            ),
            5.0,
            "wrong-range wheel-malformed",
        ),
        # An interrupted connection.
        (_sending(b""), 5.0, "transfer"),
        (_sending(b"nonsense\r\n\r\n"), 5.0, "transfer wrong-range"),
        (_sending(_HEAD), 5.0, "transfer wrong-range"),
        (
            _sending(_HEAD + b"Content-Length: 1\r\n\r\n"),
            5.0,
            "transfer wrong-range",
        ),
    ],
)
def test_unbounded_or_truncated_response_fails_quickly(reply, seconds, codes):
    started = time.monotonic()
    with _raw(reply) as url:
        assert _failure(url, seconds=seconds).code in codes.split()
    assert time.monotonic() - started < 10


def test_timeout_is_the_reason_for_an_unread_wheel():
    with _raw(lambda _connection: time.sleep(20)) as url:
        assert _failure(url, seconds=1.0).sentence.endswith(": it timed out")


def test_slow_body_is_aborted():
    head = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-65535/65536\r\nContent-Length: 65536\r\n\r\n"
    started = time.monotonic()
    with _raw(_sending(head, b"P", 0.1)) as url:
        assert _failure(url, seconds=1.5).code == "too-slow"
    assert time.monotonic() - started < 10
