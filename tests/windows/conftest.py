"""The two machines of make test-windows, each in one pytest worker."""

import pytest

from tests.windows.machine import (
    HOME,
    LAUNCHER,
    WHEELS,
    find_missing_program,
    windows_machine,
)

MACHINES = ("plain", "gpu")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Run all tests of a machine in one worker, in the order of the files."""
    for item in items:
        if "tests/windows/" not in str(item.path):
            continue
        item.add_marker(pytest.mark.windows)
        item.add_marker(pytest.mark.heavy)
        for machine in MACHINES:
            if machine in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group(machine))


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
    if "Sharing violation" in done.text:
        # In Wine, uv sometimes cannot rename a folder of its cache that it has written.
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
