"""Tests that read real wheels by range and compare them with the catalog."""

import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

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
from gpuinstall.wheels.needs import TableCache, built_cuda_majors, read_needs
from gpuinstall.wheels.package import PackageReader
from gpuinstall.wheels.ranges import WheelError
from gpuinstall.wheels.torch_wheel import read_torch
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.cases import mostly_heavy

BUILDS = {
    f"{build.name}-{build.os}_{build.arch}": build
    for build in load_catalog().builds
    if build.on_default_index and build.toolkit and build.absent != "unverified"
}
DATA = Path(__file__).parents[1] / "data"
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
    sources = read_sources(None, Path.cwd())
    address = sources.addresses.default_index or default_index(os.environ)
    if address is None:
        pytest.skip("uv names no default index")
    with (
        Client(
            sources.credentials.certificates, logins=sources.credentials.logins
        ) as client,
        requests.Session() as session,
    ):
        yield Index(
            client, session, address.rstrip("/"), sources.credentials.certificates
        )


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


def rows(name):
    """Return the lines of a table without its heading."""
    return (DATA / name).read_text("utf-8").splitlines()[1:]


@pytest.mark.heavy
@pytest.mark.network
@pytest.mark.parametrize("row", rows("wheel_code.txt"))
def test_catalog_architectures_match_companion_wheels(index, row, show):
    started = time.monotonic()
    described, _, expected = row.partition(" | ")
    name, version, platform, *cuda = described.split()
    wheel = index.wheel(name, version, platform)
    cuda_of_torch = next(iter(cuda), None)
    package = PackageReader(wheel, name, may_have_code=True, cuda=cuda_of_torch)
    architectures = package.read_code(whole=False).codes[0].architectures
    show(described, wheel, started, architectures)
    assert _short(architectures) == expected
    assert wheel.bytes_read < 20_000_000


@pytest.mark.heavy
@pytest.mark.network
@pytest.mark.parametrize("row", rows("wheel_needs.txt"))
def test_wheel_requirements_are_read_by_range(index, row, show):
    started = time.monotonic()
    described, *expected = row.split(" | ")
    wheel = index.wheel(*described.split())
    libraries = [name for name in wheel.members if re.search(r"\.so(\.|$)", name)]
    needs, _ = read_needs(TableCache(wheel), libraries)
    show(described, wheel, started, ())
    cudas = " ".join(map(str, built_cuda_majors(needs.cudas, (), ()))) or "-"
    assert [format_torch(needs.torch), cudas, needs.glibc] == expected
    for text in wheel.metadata().get_all("Requires-Dist", ()):
        if pin := re.match(r"torch ?\(?== ?(\d+\.\d+)", str(text)):
            assert needs.torch.verdict(pin[1]) is not False


def format_torch(torch):
    """Return the compatible torch versions in the format of the table."""
    match torch.kind:
        case "stable":
            return f">={torch.oldest}"
        case "ordinary":
            return " ".join(torch.fits)
        case "none":
            return "-"
    return "?"
