"""Retries with the system's certificates after an unknown issuer."""

import os
from io import StringIO
from unittest.mock import Mock

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.cli.outcome import Outcome, _retry_with_system_certificates
from gpuinstall.cli.terminal import Terminal
from gpuinstall.lock.uv.errors import explain_installation
from gpuinstall.sources import sources

UNKNOWN = explain_installation(
    "error: Failed to fetch: `https://index.example/simple/torch/`\n"
    "  cause: invalid peer certificate: UnknownIssuer"
)


@pytest.fixture(autouse=True)
def _without_the_variable(monkeypatch):
    monkeypatch.setenv("UV_SYSTEM_CERTS", "")
    monkeypatch.delenv("UV_SYSTEM_CERTS")


def test_unknown_certificate_issuer_retries_with_system_certificates():
    err = StringIO()
    work = Mock(side_effect=[UNKNOWN, Outcome({}, [])])
    assert _retry_with_system_certificates(work, Terminal(err=err)).data == {}
    assert os.environ["UV_SYSTEM_CERTS"] == "1"
    assert "the system's certificates because" in err.getvalue()


@pytest.mark.parametrize(
    ("fault", "attempts"),
    [(UNKNOWN, 2), (InstallationError("network", "unreachable", why="timed out"), 1)],
)
def test_certificate_error_is_retried_only_once(fault, attempts):
    work = Mock(side_effect=fault)
    with pytest.raises(InstallationError):
        _retry_with_system_certificates(work, Terminal(err=StringIO()))
    assert work.call_count == attempts
    assert ("UV_SYSTEM_CERTS" in os.environ) == (attempts == 2)


def test_client_uses_the_system_certificate_store(tmp_path, monkeypatch):
    store = tmp_path / "store.crt"
    store.touch()
    monkeypatch.setattr(sources, "_SYSTEM_STORES", (str(store),))
    user = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    for environ, expected in (
        ({}, None),
        ({"UV_SYSTEM_CERTS": "1"}, str(store)),
        ({"UV_SYSTEM_CERTS": "1", "SSL_CERT_FILE": "/own.pem"}, "/own.pem"),
    ):
        read = sources.read_sources(None, {**user, **environ}, tmp_path)
        assert read.certificates == expected
