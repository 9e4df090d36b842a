"""Fixtures that every folder of tests shares."""

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
"""Plays a driver to every child process of the test, and returns the environment that does it."""


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled fakes."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build the fake NVIDIA libraries")
    return once(tmp_path_factory, "libraries", build)


@pytest.fixture
def play(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Put a fake driver into this process's environment, which its children inherit."""

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
    """Say what the kernels of the small torch come to: see ``stub_torch``."""

    def start(verdict: Mapping[str, object]):
        file = tmp_path / "verdict.json"
        file.write_text(json.dumps(verdict), "utf-8")
        monkeypatch.setenv("LAB_VERDICT", str(file))

    return start


@pytest.fixture(scope="session")
def real_torch(request: pytest.FixtureRequest) -> Path:
    """An environment that holds a real torch for the CPU; not to be changed."""
    is_offline = "not network" in request.config.getoption("-m")
    return cpu_torch(offline=is_offline)


@pytest.fixture
def torch_copy(real_torch: Path, tmp_path: Path) -> Path:
    """A copy of it to break."""
    return copied(real_torch, tmp_path / "env")


@pytest.fixture
def linked_torch(tmp_path: Path) -> Path:
    """An environment whose small torch loads its libraries as the real one does, to break."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build libraries")
    return make_linked_torch(tmp_path / "env")


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Wheelhouse:
    """The packages that the tool's own environment is made of."""
    folder = once(tmp_path_factory, "wheelhouse", make_wheelhouse)
    return Wheelhouse(folder)


@pytest.fixture
def person(tmp_path: Path, wheelhouse: Wheelhouse) -> Person:
    """A user with an empty home, who takes packages from the wheelhouse."""
    home = tmp_path / "a home"
    home.mkdir()
    return Person(home, wheelhouse.settings)


@pytest.fixture
def clone(tmp_path: Path, wheelhouse: Wheelhouse) -> Path:
    """A fresh clone that pins what the wheelhouse has."""
    return wheelhouse.supply(copy_project(tmp_path / "a clone"))


@pytest.fixture(scope="session")
def equipped(
    tmp_path_factory: pytest.TempPathFactory, wheelhouse: Wheelhouse
) -> Person:
    """A user who has the tool already, made once by Python 3.12 from a clone like ``clone``; not to be changed."""

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
    """A self-signed certificate of 127.0.0.1 with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which creates a certificate, is missing")
    path = tmp_path_factory.mktemp("tls") / "loopback.pem"
    # uv accepts no certificate of an authority for a server.
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=loopback "
        "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
    )
    process.run([*command.split(), "-keyout", path, "-out", f"{path}.crt"])
    path.write_bytes(path.read_bytes() + path.with_suffix(".pem.crt").read_bytes())
    return path
