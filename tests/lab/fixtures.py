"""Fixtures that all test folders share."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpuinstall.base import process
from tests.lab.clone import Person, copy_project
from tests.lab.driver import FakeDriver, build, environment
from tests.lab.environments import copied, cpu_torch, make_linked_torch
from tests.lab.pythons import interpreter
from tests.lab.shared import once
from tests.lab.wheelhouse import Wheelhouse, make_wheelhouse

Play = Callable[[FakeDriver], dict[str, str]]
"""Simulate a driver for child processes, and return their environment."""


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled fake driver libraries."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build the fake NVIDIA libraries")
    return once(tmp_path_factory, "libraries", build)


@pytest.fixture
def play(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Simulate a driver for this process and its children."""

    def start(driver: FakeDriver) -> dict[str, str]:
        played = environment(driver, libraries, tmp_path)
        for name in ("LAB_GPUS", "LD_LIBRARY_PATH"):
            monkeypatch.setenv(name, played[name])
        return played

    return start


@pytest.fixture
def play_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Mapping[str, object]], None]:
    """Set the kernel results of the fake torch: see ``stub_torch``."""

    def start(verdict: Mapping[str, object]):
        file = tmp_path / "verdict.json"
        file.write_text(json.dumps(verdict), "utf-8")
        monkeypatch.setenv("LAB_VERDICT", str(file))

    return start


@pytest.fixture(scope="session")
def real_torch(request: pytest.FixtureRequest) -> Path:
    """A read-only environment with a real torch for the CPU."""
    is_offline = "not network" in request.config.getoption("-m")
    return cpu_torch(offline=is_offline)


@pytest.fixture
def torch_copy(real_torch: Path, tmp_path: Path) -> Path:
    """A copy of the environment with a real torch, to be damaged."""
    return copied(real_torch, tmp_path / "env")


@pytest.fixture
def linked_torch(tmp_path: Path) -> Path:
    """An environment whose fake torch loads libraries, to be damaged."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build libraries")
    return make_linked_torch(tmp_path / "env")


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Wheelhouse:
    """The packages of the tool's own environment."""
    folder = once(tmp_path_factory, "wheelhouse", make_wheelhouse)
    return Wheelhouse(folder)


@pytest.fixture
def person(tmp_path: Path, wheelhouse: Wheelhouse) -> Person:
    """A user with an empty home and packages from the wheelhouse."""
    home = tmp_path / "a home"
    home.mkdir()
    return Person(home, wheelhouse.settings)


@pytest.fixture
def clone(tmp_path: Path, wheelhouse: Wheelhouse) -> Path:
    """A new clone that pins the packages of the wheelhouse."""
    return wheelhouse.supply(copy_project(tmp_path / "a clone"))


@pytest.fixture(scope="session")
def equipped(
    tmp_path_factory: pytest.TempPathFactory, wheelhouse: Wheelhouse
) -> Person:
    """A user with a tool installed by Python 3.12 from a clone like ``clone``.

    Tests must not change it.
    """

    def equip(home: Path):
        home.mkdir()
        clone = copy_project(home.with_name("clone of the equipped"))
        wheelhouse.supply(clone)
        person = Person(home, wheelhouse.settings)
        done = person.run(interpreter("3.12"), clone / "bootstrap.py", "--help")
        assert done.returncode == 0, done.stderr

    home = once(tmp_path_factory, "home of the equipped", equip)
    return Person(home, wheelhouse.settings)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, and the private key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which creates a certificate, is missing")
    path = tmp_path_factory.mktemp("tls") / "loopback.pem"
    # uv accepts no CA certificate as a server certificate.
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=loopback "
        "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
    )
    process.run([*command.split(), "-keyout", path, "-out", f"{path}.crt"])
    path.write_bytes(path.read_bytes() + path.with_suffix(".pem.crt").read_bytes())
    return path
