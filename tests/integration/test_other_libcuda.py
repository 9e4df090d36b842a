"""Tests of a libcuda (as in cuda-compat) that precedes the driver's."""

import os
import shutil

import pytest

from tests.lab.driver import A100, FakeDriver
from tests.lab.other_libcuda import make_libcuda

OLD = FakeDriver((A100, A100), driver="550.163.01", cuda=12040)
UPDATED = FakeDriver((A100, A100), driver="590.48.01", cuda=13010)
COMMANDS = (("run", "python", "-c", ""), ("sync",), ("verify",))


@pytest.fixture
def workshop(workshop, play):
    play(OLD)
    return workshop


@pytest.fixture
def load(monkeypatch):
    """Return a function that loads a libcuda first in child processes."""

    def start(libcuda):
        path = f"{libcuda.parent}:{os.environ['LD_LIBRARY_PATH']}"
        monkeypatch.setenv("LD_LIBRARY_PATH", path)

    return start


def statuses(workshop):
    return [workshop.run(*words).status for words in COMMANDS]


def test_driver_is_detected_from_a_working_libcuda(workshop, load, tmp_path):
    libcuda = make_libcuda(tmp_path)
    load(libcuda)

    driver = workshop.document("probe")["data"]["driver"]

    assert driver == {
        "version": "580.95.05",
        "cuda": "13.0",
        "found_via": "libcuda",
        "libcuda": str(libcuda),
    }
    build = workshop.document("plan")["data"]["build"]
    assert (build["torch"], build["backend"]) == ("2.15.0", "cu130")


@pytest.mark.parametrize("error", [803, 804])
def test_failing_libcuda_is_rejected(workshop, load, tmp_path, error):
    load(make_libcuda(tmp_path, init=error))

    document = workshop.document("probe", exit_code=8)

    assert document["data"]["driver"]["version"] == OLD.driver
    assert document["errors"][0]["code"] == "forward-compatibility-unsupported"


@pytest.mark.heavy
def test_unloadable_libcuda_exits_with_8(workshop, load, play, tmp_path):
    libcuda = make_libcuda(tmp_path)
    load(libcuda)
    workshop.succeed("install")
    assert statuses(workshop) == [0, 0, 0]

    play(OLD)
    error = workshop.refusal("verify", exit_code=8)

    assert error["code"] == "libcuda-not-loaded"
    assert str(libcuda) in error["message"]
    assert f"export LD_LIBRARY_PATH={libcuda.parent}" in error["hint"]
    assert statuses(workshop) == [8, 8, 8]
    # A driver that supports this CUDA needs no other libcuda.
    play(UPDATED)
    assert statuses(workshop) == [0, 0, 0]


@pytest.mark.heavy
def test_commands_exit_with_8_after_libcuda_removal(workshop, load, tmp_path):
    libcuda = make_libcuda(tmp_path)
    load(libcuda)
    workshop.succeed("install")
    shutil.rmtree(libcuda.parent)

    assert statuses(workshop) == [8, 8, 8]
    workshop.succeed("install")
    assert statuses(workshop) == [0, 0, 0]
