"""What servers do to those who ask for parts of files."""

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


def _read(url, *, hosts=(), seconds=20.0):
    with over_http(url, hosts=hosts, seconds=seconds) as ranges:
        return read_torch(WheelReader(ranges)).architectures


def _failure(url, *, hosts=(), seconds=20.0):
    with pytest.raises(WheelError) as caught:
        _read(url, hosts=hosts, seconds=seconds)
    return caught.value


def _partial(body, span, **headers):
    return Answer(206, body, headers={"Content-Range": span} | headers)


def test_a_server_without_ranges_sends_no_whole_file():
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
def test_an_answer_that_is_not_the_part(answer, code):
    with server(lambda *_: answer) as host:
        assert _failure(host.url).code == code
        assert len(host.log) == 1


def test_a_file_that_changes_while_it_is_read():
    versions = iter([TORCH_WHEEL, TORCH_WHEEL, TORCH_WHEEL + b"x"])
    with server(lambda *_: Answer(body=next(versions))) as host:
        assert _failure(host.url).code == "wrong-range"


def test_an_error_names_no_credentials_nor_the_address_that_may_hold_them():
    with server(serving(TORCH_WHEEL, **{"Accept-Ranges": "none"})) as host:
        error = _failure(
            f"{host.url}/a.whl?signature=geheim".replace("//", "//me:geheim@")
        )
    assert "geheim" not in f"{error.message} {error.evidence} {error.why} {error.hint}"


def test_a_redirect_to_a_known_host_is_followed_once_and_without_credentials():
    with server(serving(TORCH_WHEEL)) as there:
        there_host = there.url.partition("//")[2]
        moved = Answer(302, headers={"Location": f"{there.url}/b.whl"})
        with server(lambda *_: moved) as here:
            assert _read(f"{here.url}/a.whl", hosts=(there_host,)) == ROW
            assert _failure(f"{here.url}/a.whl").code == "foreign-redirect"
        assert len(here.log) == 2
    assert here.log[0].headers["authorization"].startswith("Basic")
    assert len(there.log) == 4
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
def test_a_redirect_to_another_scheme_host_or_port_is_refused(location):
    with server(lambda *_: Answer(301, headers={"Location": location})) as host:
        assert _failure(host.url).code == "foreign-redirect"


def test_a_second_redirect_is_refused():
    with server(lambda path, _: Answer(302, headers={"Location": f"{path}a"})) as host:
        assert _failure(f"{host.url}/a").code == "foreign-redirect"
        assert len(host.log) == 2


@contextmanager
def _raw(reply):
    """A server that answers every connection with whatever ``reply`` sends, until it or the client ends."""
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


def _dribble(head, drop):
    def reply(connection):
        connection.sendall(head)
        while True:
            connection.sendall(drop)
            time.sleep(0.1)

    return reply


_HEAD = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-0/65536\r\n"


@pytest.mark.parametrize(
    "reply",
    [
        _dribble(b"HTTP/1.1 206 OK\r\n", b"X-A: b\r\n"),  # headers without end
        _dribble(b"HTTP/1.1 206 OK\r\nX-A: ", b"b"),
        _dribble(b"", b""),
    ],
)
def test_headers_that_never_end(reply):
    started = time.monotonic()
    with _raw(reply) as url:
        assert _failure(url, seconds=1.0).code in {"too-slow", "transfer"}
    assert time.monotonic() - started < 10


def test_a_body_that_dribbles():
    asked = iter(range(100))

    def reply(connection):
        if next(asked) == 0:
            connection.sendall(
                _HEAD + b"Content-Length: 1\r\nConnection: close\r\n\r\nP"
            )
            return
        head = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-65535/65536\r\nContent-Length: 65536\r\n\r\n"
        _dribble(head, b"P")(connection)

    started = time.monotonic()
    with _raw(reply) as url:
        assert _failure(url, seconds=1.5).code == "too-slow"
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("head", [b"", b"Transfer-Encoding: chunked\r\n"])
def test_a_body_without_end(head):
    def reply(connection):
        connection.sendall(_HEAD + head + b"\r\n")
        while True:
            connection.sendall(
                b"8000\r\n" + b"P" * 0x8000 + b"\r\n" if head else b"P" * 0x8000
            )

    started = time.monotonic()
    with _raw(reply) as url:
        assert _failure(url, seconds=5.0).code in {"wrong-range", "wheel-malformed"}
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "sent", [b"", b"nonsense\r\n\r\n", _HEAD, _HEAD + b"Content-Length: 1\r\n\r\n"]
)
def test_a_connection_that_breaks_off(sent):
    with _raw(lambda connection: connection.sendall(sent)) as url:
        assert _failure(url, seconds=5.0).code in {"transfer", "wrong-range"}
