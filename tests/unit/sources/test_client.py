"""The client against real hosts on loopback."""

import os
import socket
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from io import BytesIO

import pytest
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from gpuinstall.base import process
from gpuinstall.base.cache import JsonCache
from gpuinstall.base.errors import InstallationError, UnreachableError
from gpuinstall.base.timeouts import Timeouts
from gpuinstall.sources.web import (
    Client,
    FileHash,
    Head,
)
from tests.lab.host import CHUNK, NOT_FOUND, UNAUTHORIZED, Answer, Host
from tests.lab.pace import slowness

FILE = b"wheel" * CHUNK


@pytest.fixture
def host():
    """Serve a page, a file, and paths with malformed responses."""

    def respond(path, headers):
        match path:
            case "/page/" | "/untagged/":
                tags = {"ETag": ""} if path == "/untagged/" else {}
                return Answer(200, "Fenêtre".encode(), "text/html", tags)
            case "/secret/":
                login = headers.get("authorization") == "Basic bWU6c2VjcmV0"
                return Answer(200, b"open", "text/html") if login else UNAUTHORIZED
            case "/kept-by-nobody/":
                return Answer(200, b"page", "text/html", {"Cache-Control": "no-store"})
            case "/file.whl":
                return Answer(200, FILE)
            case "/broken":
                return Answer(503, b"later")
            case _:
                return NOT_FOUND

    host = Host("web", respond)
    yield host
    host.close()


@pytest.fixture
def client(tmp_path):
    """Create a client with its own cache."""
    with Client(cache=tmp_path / "cache") as client:
        yield client


def test_ignored_status_of_an_index_means_no_page(host, tmp_path):
    ignored = {f"{host.url}/none": [401, 503]}
    with (
        Client(cache=tmp_path / "cache", ignored=ignored) as client,
        pytest.raises(UnreachableError),
    ):
        client.page(f"{host.url}/broken")
    with Client(cache=tmp_path / "more", ignored={host.url: [401, 503]}) as client:
        assert client.page(f"{host.url}/broken") is None
        assert client.page(f"{host.url}/secret/") is None
        assert client.page(f"{host.url}/page/") is not None


def _nobody():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_cached_page_is_revalidated(host, tmp_path):
    for _ in range(2):
        with Client(cache=tmp_path) as client:
            client.renewed = frozenset({"page"})
            page = client.page(f"{host.url}/page/")
            assert page is not None
            assert page.text == "Fenêtre"
    assert [(asked.status, asked.sent > 0) for asked in host.log] == [
        (200, True),
        (304, False),
    ]


@pytest.mark.parametrize("path", ["page", "untagged"])
def test_offline_client_uses_only_its_cache(path, host, client, tmp_path):
    page = client.page(f"{host.url}/{path}/")
    host.log.clear()
    with Client(cache=tmp_path / "cache", offline=True) as offline:
        assert offline.page(f"{host.url}/{path}/") == page
        with pytest.raises(UnreachableError):
            offline.page(f"{host.url}/nothing/")
        assert offline.optional_page(f"{host.url}/nothing/") is None
    assert host.log == []


def test_missing_credentials_have_a_hint(host, tmp_path):
    with Client(cache=tmp_path, logins={host.url: "me:secret"}) as client:
        page = client.page(f"{host.url}/secret/")
    assert page is not None
    assert page.text == "open"
    with (
        Client(cache=tmp_path / "other") as client,
        pytest.raises(InstallationError, match="returned HTTP status 401") as caught,
    ):
        client.page(f"{host.url}/secret/")
    assert "password" in (caught.value.hint or "")


def test_request_without_login_sends_no_credentials(tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text(
        "machine 127.0.0.1 login me password secret\n", "utf-8"
    )
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    served = Host(
        "login",
        lambda _path, headers: Answer(
            200, headers.get("authorization", "").encode(), "text/html"
        ),
    )
    with Client(cache=tmp_path / "cache", logins={served.url: ":"}) as client:
        page = client.page(f"{served.url}/simple/")
    served.close()
    assert page is not None
    assert page.text == "Basic Og=="


class Redirecting(HTTPAdapter):
    """Redirect the first request. Real ports 80 and 443 need root."""

    def __init__(self, location: str) -> None:
        super().__init__()
        self.location = location
        self.logins: list[str | None] = []

    def send(self, request: PreparedRequest, *_: object, **__: object) -> Response:
        self.logins.append(request.headers.get("Authorization"))
        response = Response()
        response.request, response.url = request, str(request.url)
        response.raw = HTTPResponse(BytesIO(b"page"), preload_content=False)
        response.status_code = 200
        response.headers["Content-Type"] = "text/html"
        if response.url != self.location:
            response.status_code = 302
            response.headers["Location"] = self.location
        return response


@pytest.mark.parametrize(
    ("first", "then", "kept"),
    [
        ("http://h.example/", "https://h.example/", True),
        ("http://h.example:80/", "https://h.example:443/", True),
        ("http://h.example/", "http://h.example/x", True),
        ("https://h.example/", "http://h.example/", False),
        ("http://h.example:8080/", "https://h.example/", False),
        ("http://h.example/", "https://h.example:8443/", False),
        ("https://h.example/", "https://h.example:8443/", False),
        ("http://h.example/", "https://other.example/", False),
        ("http://h.example/", "https://sub.h.example/", False),
        ("http://sub.h.example/", "https://h.example/", False),
    ],
)
def test_redirects_keep_logins_only_for_tls(tmp_path, monkeypatch, first, then, kept):
    monkeypatch.setenv("NETRC", os.devnull)
    server = first.rstrip("/")
    with Client(cache=tmp_path, logins={server: "me:secret"}) as client:
        adapter = Redirecting(then)
        for scheme in ("http://", "https://"):
            client._open_session().mount(scheme, adapter)
        client.page(first)
    assert adapter.logins == ["Basic bWU6c2VjcmV0", adapter.logins[0] if kept else None]


def test_redirect_to_an_invalid_url_fails(tmp_path):
    with Client(cache=tmp_path) as client:
        client._open_session().mount("http://", Redirecting("/\x9b"))
        with pytest.raises(UnreachableError) as failed:
            client.page("http://h.example/")
    assert failed.value.why == "it redirected to an invalid URL"


def test_head_requests_reuse_one_connection(host, client):
    for number in range(3):
        client.head(f"{host.url}/{number}.whl")
        client.is_gone(f"{host.url}/{number}.whl")

    assert host.connections == 1


def test_head_response_has_size_and_etag(host, client):
    head = client.head(f"{host.url}/file.whl")
    assert (head.size, bool(head.etag)) == (len(FILE), True)
    assert client.head(f"{host.url}/nothing.whl") == Head()
    assert sum(asked.sent for asked in host.log) == 0


def test_truncated_file_is_an_error(client):
    headers = {"Content-Length": str(len(FILE) + 1), "Connection": "close"}
    host = Host("liar", lambda _path, _headers: Answer(200, FILE, headers=headers))
    with pytest.raises(InstallationError, match="was interrupted"):
        list(client.chunks(f"{host.url}/file.whl", None))
    host.close()


def test_host_refusing_connections_is_requested_once(client):
    url = _nobody()
    with pytest.raises(UnreachableError, match="cannot be reached") as caught:
        client.page(f"{url}/page/")
    assert caught.value.why == "connection refused"
    started = time.perf_counter()
    with pytest.raises(UnreachableError):
        client.head(f"{url}/file.whl")
    assert time.perf_counter() - started < 0.01 * slowness()


@pytest.mark.parametrize("is_quick", [False, True])
def test_short_timeout_applies_only_to_quick_hosts(tmp_path, is_quick):
    # 8 of the default 30 seconds.
    timeouts = Timeouts(silence=1.5 * slowness())

    def respond(_path, _headers):
        time.sleep(8 / 30 * timeouts.silence)
        return Answer(200, b"page", "text/html")

    with closing(Host("slow", respond)) as host:
        quick_hosts = [host.url.removeprefix("http://")] if is_quick else []
        client = Client(cache=tmp_path, timeouts=timeouts, quick_hosts=quick_hosts)
        with client, suppress(UnreachableError):
            client.page(f"{host.url}/page/")
        assert (client.unreachable(host.url) is not None) == is_quick


def test_quick_hosts_are_tried_without_pause(tmp_path, monkeypatch):
    pauses = list[float]()
    monkeypatch.setattr(time, "sleep", pauses.append)
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = f"127.0.0.1:{server.getsockname()[1]}"
    with (
        Client(cache=tmp_path, quick_hosts={host}) as client,
        pytest.raises(UnreachableError),
    ):
        client.page(f"http://{host}/page/")
    assert pauses == []


def test_unresponsive_host_times_out_once_across_threads(tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        host = f"127.0.0.1:{server.getsockname()[1]}"
        client = Client(
            cache=tmp_path, timeouts=Timeouts(silence=1.5), quick_hosts={host}
        )
        url = f"http://{host}/page/"
        started = time.perf_counter()
        asked = [pool.submit(client.page, url) for _ in range(8)]
        assert {type(one.exception()) for one in asked} == {UnreachableError}
        assert time.perf_counter() - started < 2 * slowness()


def test_only_configured_certificates_are_trusted(certificate, tmp_path):
    host = Host(
        "tls",
        lambda _path, _headers: Answer(200, b"safe", "text/html"),
        certificate=certificate,
    )
    with Client(str(certificate), cache=tmp_path) as client:
        page = client.page(f"{host.url}/page/")
    with Client(cache=tmp_path / "third", insecure_hosts=["127.0.0.1"]) as client:
        assert client.page(f"{host.url}/page/") == page
    with (
        Client(cache=tmp_path / "other") as client,
        pytest.raises(UnreachableError) as caught,
    ):
        client.page(f"{host.url}/page/")
    host.close()
    assert page is not None
    assert page.text == "safe"
    assert caught.value.why == "its certificate could not be verified"
    assert "SSL_CERT_FILE" in (caught.value.hint or "")


def test_several_folders_of_certificates_are_trusted(certificate, tmp_path):
    command = ["openssl", "x509", "-noout", "-hash", "-in", str(certificate)]
    name = process.run(command).out.strip()
    folders = [tmp_path / "empty", tmp_path / "company"]
    for folder in folders:
        folder.mkdir()
    (folders[1] / f"{name}.0").write_bytes(certificate.read_bytes())

    def respond(_path, _headers):
        return Answer(200, b"safe", "text/html")

    with (
        closing(Host("tls", respond, certificate=certificate)) as host,
        Client(os.pathsep.join(map(str, folders)), cache=tmp_path) as client,
    ):
        page = client.page(f"{host.url}/page/")
    assert page is not None
    assert page.text == "safe"


def test_missing_ca_certificates_are_reported(tmp_path):
    with (
        Client(str(tmp_path / "gone.pem"), cache=tmp_path) as client,
        pytest.raises(UnreachableError) as caught,
    ):
        client.page("https://index.example/page/")
    assert caught.value.why == "the CA certificates cannot be read"


def test_ca_certificates_are_parsed_once(certificate, tmp_path, monkeypatch):
    loaded = []
    load = ssl.SSLContext.load_verify_locations

    def count(context, *files):
        loaded.append(files)
        load(context, *files)

    def respond(_path, _headers):
        time.sleep(0.2)
        return Answer(200, b"safe", "text/html")

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", count)
    host = Host("tls", respond, certificate=certificate)
    urls = [f"{host.url}/{number}/" for number in range(4)]
    with Client(str(certificate), cache=tmp_path) as client, ThreadPoolExecutor() as at:
        assert all(at.map(client.page, urls))
    host.close()
    assert len(loaded) == 1


def test_host_with_server_error_is_unreachable(host, client):
    with pytest.raises(UnreachableError) as caught:
        client.page(f"{host.url}/broken")
    assert caught.value.why == "it returned HTTP status 503"


def test_reset_connection_is_retried_three_times(client):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        server.settimeout(20)
        asked = pool.submit(
            client.page, f"http://127.0.0.1:{server.getsockname()[1]}/page/"
        )
        for _ in range(3):
            server.accept()[0].close()
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
            )
        page = asked.result(timeout=5)
    assert page is not None
    assert page.text == "hi"


def test_damaged_cache_is_replaced(host, tmp_path):
    with Client(cache=tmp_path) as client:
        before = client.page(f"{host.url}/page/")
        for kept in (tmp_path / "pages").iterdir():
            kept.write_text('{"text": 1, ', "utf-8")
    with Client(cache=tmp_path) as client:
        assert client.page(f"{host.url}/page/") == before


@pytest.mark.skipif(sys.platform == "win32", reason="requires named pipes")
@pytest.mark.parametrize("kind", ["pipe", "link without end", "too deep"])
def test_unreadable_cache_entries_are_ignored(tmp_path, kind):
    cache = JsonCache(tmp_path, FileHash)
    cache.put("https://index.example/", FileHash("0" * 64, None))
    [answer] = tmp_path.iterdir()
    assert cache.get("https://index.example/") == FileHash("0" * 64, None)
    answer.unlink()
    match kind:
        case "pipe":
            os.mkfifo(answer)
        case "link without end":
            answer.symlink_to("/dev/zero")
        case "too deep":
            answer.write_text("[" * 100_000)
    assert cache.get("https://index.example/") is None
