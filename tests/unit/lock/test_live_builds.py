"""Builds and companions that the sources list."""

from packaging.version import Version

from gpuinstall.base import uv
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request, Sourcing
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.live_builds import add_listed_builds
from gpuinstall.machine.options import machine_from_options
from gpuinstall.sources.session import open_session
from gpuinstall.wheels.learned.reader import make_reader
from tests.frozen import frozen_catalog
from tests.lab.own_sources import read_sources


def test_companions_of_uvs_default_index_are_listed(tmp_path, monkeypatch):
    wheel = tmp_path / "torchaudio" / "torchaudio-2.99.0-py3-none-win_amd64.whl"
    wheel.parent.mkdir()
    wheel.touch()
    monkeypatch.setattr(uv, "default_index", lambda _environment: tmp_path.as_uri())
    machine = machine_from_options(("RTX 4090",), "580.95.05", os="windows")
    request = LockRequest(machine, Request(("torch", "torchaudio")), frozen_catalog())
    offline = Sourcing(offline=True)
    sources = read_sources(None, {}, tmp_path)
    with open_session(sources, Reporter(), sourcing=offline) as session:
        listed = session.find_listed_sources()
        reader = make_reader(session)
        live = add_listed_builds(request, listed, session.client, reader)
    assert live.catalog.uncataloged["torchaudio", ""] == [Version("2.99.0")]
