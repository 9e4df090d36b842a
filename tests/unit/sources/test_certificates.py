"""TLS certificates of the system's store, for the client and for uv."""

import os
import subprocess
import sys
from contextlib import closing

import pytest
import truststore

from gpuinstall.base import uv
from gpuinstall.base.errors import UnreachableError
from gpuinstall.sources import certificates
from gpuinstall.sources.certificates import select_uv_certificates
from gpuinstall.sources.web import Client
from tests.lab.host import Answer, Host

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS")


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch):
    for name in (*VARIABLES, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def index(certificate):
    def respond(path, _headers):
        wheel = "<a href='thing-1-py3-none-any.whl' data-core-metadata='true'>x</a>"
        metadata = b"Metadata-Version: 2.3\nName: thing\nVersion: 1\n"
        content = metadata if path.endswith(".metadata") else wheel.encode()
        return Answer(200, content, "text/html")

    with closing(Host("tls", respond, certificate)) as host:
        yield host


@pytest.fixture
def store(certificate, monkeypatch):
    """Store a company's certificate."""
    monkeypatch.setattr(certificates, "_STORES", ("/nowhere", str(certificate)))


def resolve(index, folder):
    """Resolve with uv and the selected certificates."""
    environ = uv.environment(os.environ, {"UV_CACHE_DIR": str(folder / "uv")})
    environ |= select_uv_certificates(environ, folder)
    command = f"{uv.uv()} pip compile - --no-header --default-index {index.url}"
    return subprocess.run(
        command.split(),
        check=False,
        input="thing",
        capture_output=True,
        encoding="utf-8",
        env=environ,
    )


@pytest.mark.usefixtures("store")
def test_certificate_in_the_store_is_trusted(index, tmp_path):
    with Client(cache=tmp_path) as client:
        assert client.page(f"{index.url}/thing/")
    done = resolve(index, tmp_path)
    assert done.stdout.startswith("thing==1"), done.stderr


def test_uv_needs_no_store(index, tmp_path, monkeypatch):
    empty = tmp_path / "empty.pem"
    empty.touch()
    for stores in ((), (str(empty),)):
        monkeypatch.setattr(certificates, "_STORES", stores)
        assert select_uv_certificates({}, tmp_path) == {}
        assert "UnknownIssuer" in resolve(index, tmp_path).stderr


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("name", VARIABLES)
def test_uv_uses_the_certificates_that_the_user_selects(name, tmp_path):
    assert select_uv_certificates({name: "1"}, tmp_path) == {}


def test_store_of_windows_and_macos_is_trusted(
    index, certificate, tmp_path, monkeypatch
):
    monkeypatch.setattr(certificates, "_STORES", ())
    monkeypatch.setattr(sys, "platform", "darwin")
    assert select_uv_certificates({}, tmp_path) == {"UV_SYSTEM_CERTS": "1"}
    # On Linux, the store of truststore is OpenSSL's.
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    contexts = []

    class Context(truststore.SSLContext):
        def __init__(self, protocol):
            super().__init__(protocol)
            contexts.append(self)

    monkeypatch.setattr(truststore, "SSLContext", Context)
    with Client(cache=tmp_path) as client:
        for name in ("thing", "other"):
            assert client.page(f"{index.url}/{name}/")
    assert len(contexts) == 1


def test_untrusted_host_is_contacted_once(index, tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "_STORES", ())
    with Client(cache=tmp_path) as client:
        for _ in range(2):
            with pytest.raises(UnreachableError, match="cannot be reached"):
                client.page(f"{index.url}/thing/")
    assert index.connections == 1
