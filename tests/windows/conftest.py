"""The two machines of make test-windows, each in one pytest worker."""

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.windows.machine import (
    HOME,
    LAUNCHER,
    UV_RACE,
    WHEELS,
    find_missing_program,
    windows_machine,
)

WITH_GPU = ("test_gpus.py", "test_units.py")
"""The files with tests for the machine with a GPU."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Run all tests of a machine in one worker, in the order of the files.

    The marker of ``loadgroup`` has no effect in pytest 9.2.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    scheduling = LoadScopeScheduling(config, log)
    vars(scheduling)["_split_scope"] = find_machine
    return scheduling


def find_machine(test):
    """Return the machine of a test."""
    file, _, _ = test.partition("::")
    return "gpu" if file.endswith(WITH_GPU) else "plain"


def pytest_collection_modifyitems(items):
    """Mark the tests, which run only on request."""
    for item in items:
        if "tests/windows/" in str(item.path):
            item.add_marker(pytest.mark.windows)
            item.add_marker(pytest.mark.heavy)


def machine(name):
    """Provide a machine on which bootstrap.py has not run."""
    missing = find_missing_program()
    if missing:
        pytest.skip(missing)
    with windows_machine(name, has_gpu=name == "gpu") as made:
        yield made


@pytest.fixture(scope="session")
def plain():
    """A machine without a GPU."""
    yield from machine("plain")


@pytest.fixture(scope="session")
def gpu():
    """A machine with NVIDIA's driver, whose GPUs a variable describes."""
    yield from machine("gpu")


@pytest.fixture(scope="session")
def project(plain):
    """A project with torch, whose environment bootstrap.py created."""
    folder = f"{HOME}\\a b"
    install = (r"C:\gpuinstall\bootstrap.py", "install", "torch", "einops>=0.7")
    env = {"UV_FIND_LINKS": WHEELS}
    done = plain.run("python", *install, cwd=folder, env=env)
    if UV_RACE.search(done.text):
        done = plain.run("python", *install, cwd=folder, env=env)
    assert done.status == 0, done.text
    return folder


@pytest.fixture
def command(plain, project):
    """Run the launcher in the project, and return its output."""

    def run(*arguments, status=0, env=None, cwd=project):
        done = plain.run(
            *(LAUNCHER, *arguments),
            cwd=cwd,
            env={"UV_FIND_LINKS": WHEELS, **(env or {})},
        )
        assert done.status == status, done.text
        return done.text

    return run
