"""Unit tests of packages, run by CPython for Windows."""

import shutil

import pytest

from tests.lab.clone import ROOT
from tests.windows.machine import HOME

UV = "C:\\uv\\uv.exe"
ENVIRONMENT = f"{HOME}\\tests"
REPOSITORY = "C:\\repository"
PACKAGES = ("plan", "machine", "export", "cli", "diagnose", "environments")
PYTEST = (
    "-m pytest -q -rsf --noconftest -p no:cacheprovider "
    "-p tests.lab.skips -p tests.windows.plugin "
    "-o filterwarnings=default --basetemp C:/tests"
)


@pytest.fixture(scope="session")
def python(gpu):
    """The interpreter of an environment with the project and pytest."""
    repository = gpu.path(REPOSITORY)
    for path in ROOT.iterdir():
        ignored = path.name.startswith((".venv", ".git", ".hypothesis"))
        if path.is_dir() and not ignored:
            caches = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, repository / path.name, ignore=caches)
        elif path.is_file():
            repository.mkdir(exist_ok=True)
            shutil.copy2(path, repository)

    def uv(*arguments):
        done = gpu.run(UV, *arguments, cwd=REPOSITORY)
        if done.status == 1 and not done.raw:
            # In Wine, even "uv --version" sometimes ends so on a loaded machine.
            done = gpu.run(UV, *arguments, cwd=REPOSITORY)
        assert done.status == 0, done.text

    install = ("pip", "install", "-q", "--python", ENVIRONMENT)
    tools = ("-c", r"lockfiles\development.txt", "pytest", "hypothesis")
    modules = ("tomli-w", "filelock")
    uv("venv", "-q", ENVIRONMENT)
    uv(*install, "-r", r"lockfiles\tool.txt")
    uv(*install, *tools, *modules)
    uv(*install, "--no-deps", "-e", ".")
    return f"{ENVIRONMENT}\\Scripts\\python.exe"


@pytest.mark.parametrize("package", PACKAGES)
def test_units_pass_on_windows(gpu, python, package):
    folder = f"tests\\unit\\{package}"
    done = gpu.run(python, *PYTEST.split(), folder, cwd=REPOSITORY)
    assert done.status == 0, done.text
