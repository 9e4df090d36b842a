"""Indexes in pip's configuration files."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuinstall.base import uv
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.process import observe_commands
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.catalog import load_catalog
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.locks import resolve_locks
from gpuinstall.machine.options import machine_from_options
from gpuinstall.sources import Sources
from gpuinstall.sources.addresses import Addresses
from gpuinstall.sources.configuration import (
    convert_pip_options,
    parse_pip_options,
)
from gpuinstall.sources.provenance import Effect, create_setting
from gpuinstall.sources.session import open_session

FOLDER = Path("/project")
PIP_FILE = FOLDER / "pip.conf"


def written(settings):
    """Return settings as their tool writes them."""
    return [(setting.key, setting.value) for setting in settings]


def test_indexes_and_certificates_are_read_from_pip_conf():
    text = """
[global]
index-url = https://index.example/simple
extra-index-url = https://a.example/simple
    https://b.example/simple
find_links = /wheels ./near https://index.example/links
[install]
cert = /ca.pem
"""
    settings = [*convert_pip_options(parse_pip_options(text), PIP_FILE, FOLDER)]
    assert written(settings) == [
        ("--index-url", "https://index.example/simple"),
        ("--extra-index-url", "https://a.example/simple"),
        ("--extra-index-url", "https://b.example/simple"),
        ("--find-links", "/wheels"),
        ("--find-links", "/project/near"),
        ("--find-links", "https://index.example/links"),
        ("cert", "/ca.pem"),
    ]
    assert {setting.file for setting in settings} == {PIP_FILE}


def test_pip_section_install_precedes_global():
    text = "[install]\nindex-url = https://install.example\n[global]\nindex-url = https://global.example\n"
    settings = [*convert_pip_options(parse_pip_options(text), PIP_FILE, FOLDER)]
    assert written(settings) == [("--index-url", "https://install.example")]


def test_default_index_of_uv_is_queried_once(tmp_path, monkeypatch):
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    uv._query.cache_clear()
    locked = create_setting(
        Effect.KNOWN_INDEX, "locked package index", "https://x.example/simple", tmp_path
    )
    sources = Sources(
        Addresses(settings=(locked, replace(locked, effect=Effect.EXTRA_INDEX)))
    )
    commands: list[Sequence[str]] = []
    with (
        observe_commands(commands.append),
        open_session(sources, Reporter(), tmp_path) as session,
    ):
        assert session.find_default_index()
    assert sum("--emit-index-url" in command for command in commands) == 1


def test_lock_asks_uv_for_default_index_once(tmp_path, monkeypatch):
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # No index responds.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    uv._query.cache_clear()
    machine = machine_from_options(("RTX 4090",), "580.95.05", glibc="2.35")
    request = LockRequest(machine, Request(("a", "b", "c")), load_catalog())
    commands: list[Sequence[str]] = []
    with (
        observe_commands(commands.append),
        open_session(Sources(), Reporter(), tmp_path) as session,
        pytest.raises(GpuInstallError),
    ):
        resolve_locks([request], session)
    assert sum("--emit-index-url" in command for command in commands) == 1
