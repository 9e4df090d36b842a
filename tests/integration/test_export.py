"""Tests that pip and uv can install exported lock files."""

import shutil
import sys
from dataclasses import replace

import pytest
import yaml

from gpuinstall.base import process
from tests.lab.index import SimulatedIndex
from tests.lab.workshop import Workshop

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def index(catalog_wheels):
    """Serve a simulated index for all tests of this module."""
    with SimulatedIndex(catalog_wheels) as index:
        yield index


@pytest.fixture(scope="module")
def locked(index, tmp_path_factory):
    """Create a folder with locks for cu126 and the CPU."""
    workshop = Workshop.made(tmp_path_factory.mktemp("export"), index.environment())
    gpu = ("--gpu", "RTX 4090", "--driver", "550.90")
    workshop.document("lock", "torch", "torchvision", "--python", PYTHON, *gpu)
    workshop.document("lock", "torch==2.14.1", "--python", PYTHON, "--backend", "cpu")
    return workshop


@pytest.fixture
def workshop(locked, tmp_path):
    """Copy the lock files to a folder that the test may change."""
    return replace(locked, folder=shutil.copytree(locked.folder, tmp_path / "project"))


def export(workshop, *words):
    return workshop.document("export", *words)["data"]


def default_index(workshop):
    return workshop.variables["UV_DEFAULT_INDEX"]


def pip_install(workshop, file):
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "--require-hashes",
    ]
    words = [*pip, "--index-url", default_index(workshop), "-r", file]
    return process.run(words, env=workshop.environment, cwd=workshop.folder)


@pytest.mark.heavy
def test_pip_accepts_pip_section_of_exported_conda_environment(workshop):
    document = yaml.safe_load(
        export(workshop, "conda", "--lock", "pylock.cu126.toml")["text"]
    )
    lines = document["dependencies"][-1]["pip"]
    (workshop.folder / "condaenv.txt").write_text("\n".join(lines), "utf-8")
    done = pip_install(workshop, "condaenv.txt")
    assert done.ok, done.err
    assert f"python={PYTHON}" in document["dependencies"]
