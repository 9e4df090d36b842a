"""Tests that read real wheels by range and compare them with the catalog."""

import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import requests

from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.timeouts import Timeouts
from gpuinstall.base.uv import default_index
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.listing import platforms
from gpuinstall.catalog.pages import parse_page
from gpuinstall.sources import read_sources
from gpuinstall.sources.web import Client
from gpuinstall.wheels.gpu_code import sort_architectures
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.package import PackageReader
from gpuinstall.wheels.ranges import WheelError
from gpuinstall.wheels.torch_wheel import read_torch
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.cases import mostly_heavy


class Companion(NamedTuple):
    """A wheel and the GPU code in its libraries."""

    package: str
    version: str
    platform: str
    code: str
    cuda: str | None = None


COMPANIONS = [
    Companion(
        "nvidia-cudnn-cu12",
        "9.8.0.87",
        "linux_x86_64",
        "50 60 61 70 75 80 86 90a 100 120 +120",
    ),
    Companion(
        "nvidia-cudnn-cu13",
        "9.26.0.51",
        "linux_x86_64",
        "75 80 86 90a 100f 120f 121 +121",
    ),
    Companion(
        "nvidia-cudnn-cu13",
        "9.26.0.51",
        "linux_aarch64",
        "75 80 86 90a 100f 110f 120f 121 +121",
    ),
    Companion(
        "nvidia-cudnn-cu13",
        "9.28.0.42",
        "windows_x86_64",
        "75 80 86 90a 100f 120f +120f",
    ),
    Companion(
        "nvidia-nccl-cu13", "2.30.7", "linux_x86_64", "75 80 90 100 110 120 +120"
    ),
    Companion("torchvision", "0.29.2", "linux_x86_64", "75 80 86 90 100 120 +120"),
    Companion("xformers", "0.0.33.post2", "linux_x86_64", "75 80 90a +80"),
    Companion(
        "bitsandbytes", "0.50.2", "linux_x86_64", "60 70 75 80 86 89 90 +90", "12.6"
    ),
    Companion(
        "bitsandbytes", "0.50.2", "linux_x86_64", "75 80 86 89 90 100 120 +120", "13.2"
    ),
]
BUILDS = {
    f"{build.name}-{build.os}_{build.arch}": build
    for build in load_catalog().builds
    if build.on_default_index and build.toolkit and build.absent != "unverified"
}
OF_THE_NETWORK = {"too-slow", "transfer"}
WITH_TRAP = "2.9.1+cu128-linux_x86_64"
NEWEST = max(
    (name for name in BUILDS if "x86_64" in name), key=lambda name: BUILDS[name].torch
)


@dataclass(frozen=True)
class Index:
    """The default index of pip and uv."""

    client: Client
    session: requests.Session
    address: str
    certificates: str | None

    def wheel(self, package, version, platform):
        return WheelReader(self.ranges(package, version, platform))

    def ranges(self, package, version, platform):
        try:
            page = self.client.page(f"{self.address}/{package}/")
        except GpuInstallError as error:
            pytest.skip(f"the default index is not there: {error.message}")
        assert page is not None
        wheels = parse_page(page)
        those = [
            wheel
            for wheel in wheels
            if str(wheel.version) == version and platform in platforms(wheel.tags)
        ]
        first = min(
            those, key=lambda wheel: wheel.filename
        )  # Pages are unordered, and wheels differ between Pythons.
        return HttpRanges(self._ask, first.url, timeouts=Timeouts(75))

    def _ask(self, url, headers, *, login):
        assert login
        return self.session.get(
            url,
            headers=dict(headers),
            timeout=(5, 20),
            verify=self.certificates or True,
            stream=True,
            allow_redirects=False,
        )


@pytest.fixture(scope="module")
def index():
    sources = read_sources(None, os.environ, Path.cwd())
    address = sources.default_index or default_index(os.environ)
    if address is None:
        pytest.skip("uv names no default index")
    with (
        Client(sources.certificates, logins=sources.logins) as client,
        requests.Session() as session,
    ):
        yield Index(client, session, address.rstrip("/"), sources.certificates)


@pytest.fixture
def show(capsys):
    """Print a table row: name, bytes, requests, seconds, architectures."""

    def line(name, wheel, started, code):
        with capsys.disabled():
            cost = (
                f"{wheel.bytes_read / 1e6:6.2f} MB {time.monotonic() - started:5.1f} s"
            )
            sys.stdout.write(f"\n{name:48} {cost}  {_short(code)}")

    return line


def _short(code):
    return " ".join(
        re.sub(
            "sm_|compute_", lambda found: "+" if found[0] == "compute_" else "", name
        )
        for name in code
    )


def _learn(index, name, show):
    build, started = BUILDS[name], time.monotonic()
    wheel = index.wheel("torch", str(build.torch), f"{build.os}_{build.arch}")
    code = read_torch(wheel)
    show(f"torch {name}", wheel, started, code.architectures)
    assert code.architectures == sort_architectures(build.code)
    assert code.toolkit == build.backend
    assert wheel.bytes_read < 10_000_000


@pytest.mark.parametrize("name", mostly_heavy([NEWEST, WITH_TRAP], [NEWEST]))
def test_torch_wheel_matches_the_catalog(index, name, show):
    try:
        _learn(index, name, show)
    except WheelError as error:
        if error.code not in OF_THE_NETWORK:
            raise
        pytest.skip(f"the default index was not to be had: {error.message}")


@pytest.mark.heavy
@pytest.mark.network
@pytest.mark.parametrize("name", sorted(set(BUILDS) - {NEWEST, WITH_TRAP}))
def test_all_torch_wheels_match_the_catalog(index, name, show):
    _learn(index, name, show)


@pytest.mark.heavy
@pytest.mark.network
@pytest.mark.parametrize(
    "one",
    COMPANIONS,
    ids=lambda one: f"{one.package}-{one.version}-{one.platform}-{one.cuda}",
)
def test_catalog_architectures_match_companion_wheels(index, one, show):
    started = time.monotonic()
    wheel = index.wheel(one.package, one.version, one.platform)
    package = PackageReader(wheel, one.package, may_have_code=True, cuda=one.cuda)
    code = package.read_code(whole=False)
    architectures = code.codes[0].architectures
    beside = f", CUDA {one.cuda}" if one.cuda else ""
    show(
        f"{one.package} {one.version} {one.platform}{beside}",
        wheel,
        started,
        architectures,
    )
    assert _short(architectures) == one.code
    assert wheel.bytes_read < 20_000_000
