"""The compiled modules of a package, from one environment to the next that has the very same package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuinstall.base.files import own_cache_folder
from gpuinstall.install.bytecode import MOST_PACKAGES, keep_bytecode, link_bytecode
from tests.lab.environments import put_package

SITE = "lib/python3.12/site-packages"
COMPILED = "torch/__pycache__/__init__.cpython-312.pyc"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return own_cache_folder() / "bytecode"


def environment(folder: Path, text: str = "1") -> Path:
    """An environment with torch, one module of it recorded."""
    site = folder / SITE
    site.mkdir(parents=True)
    put_package(site, "torch", {"torch/__init__.py": text, "torch/nn/__init__.py": ""})
    return folder


@pytest.fixture
def proven(tmp_path: Path) -> Path:
    """An environment whose torch was imported, and whose user has a module of their own in it."""
    venv = environment(tmp_path / "proven")
    compiled = venv / SITE / COMPILED
    compiled.parent.mkdir()
    compiled.write_text("compiled")
    compiled.with_name("mine.cpython-312.pyc").write_text("mine")
    keep_bytecode(venv, {"torch", "numpy"})
    return venv


def compiled_files(venv: Path) -> list[str]:
    return sorted(path.relative_to(venv / SITE).as_posix() for path in venv.rglob("*.pyc"))


def test_a_fresh_environment_of_the_same_package_gets_what_was_compiled(proven, tmp_path):
    fresh = environment(tmp_path / "fresh")

    link_bytecode(fresh, {"torch"})

    assert compiled_files(fresh) == [COMPILED]
    assert (fresh / SITE / COMPILED).samefile(proven / SITE / COMPILED)


def test_only_kept_bytecode_is_removed(tmp_path, cache):
    names = ["mine", *(f"torch-{number:032x}" for number in range(MOST_PACKAGES + 5))]
    for second, name in enumerate(names):
        (cache / name).mkdir(parents=True, mode=0o700)
        os.utime(cache / name, (second, second))
    cache.chmod(0o700)

    keep_bytecode(tmp_path / "none", {"torch"})

    assert {path.name for path in cache.iterdir()} == {"mine", *names[-MOST_PACKAGES:]}


@pytest.mark.usefixtures("proven")
def test_another_file_of_the_package_gets_nothing(tmp_path):
    other = environment(tmp_path / "other", text="another size")

    link_bytecode(other, {"torch"})

    assert compiled_files(other) == []


@pytest.mark.usefixtures("proven")
def test_nothing_comes_from_a_folder_that_others_can_write_to(tmp_path, cache):
    cache.chmod(0o777)
    fresh = environment(tmp_path / "fresh")

    link_bytecode(fresh, {"torch"})

    assert compiled_files(fresh) == []
