"""An environment is changed in a copy of links; nothing that is done there is seen in the environment itself."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.environments.environment import read_marker
from gpuinstall.install.stage import copy_environment
from gpuinstall.install.state import (
    ExistingEnvironment,
    leaving_packages,
    unchanged_packages,
)
from gpuinstall.lock.fit import Fit
from gpuinstall.lock.lock import parse
from tests.lab.environments import put_package
from tests.unit.install.environments import lock_text, make_environment

SITE = "lib/python3.12/site-packages"


@pytest.fixture
def venv(tmp_path):
    venv = tmp_path / "venv"
    put_package(
        venv / SITE, "torch", {"torch/__init__.py": "1", "torch/lib/libtorch.so": "22"}
    )
    (venv / "bin").mkdir()
    (venv / "bin" / "torchrun").write_text("#!/bin/sh")
    (venv / "bin" / "ninja").write_text("x" * 100_000)
    (venv / "bin" / "python").symlink_to(os.devnull)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin")
    (venv / "notes.txt").write_text("mine")
    os.mkfifo(venv / "pipe")
    return venv


def test_a_copy_has_all_and_links_what_nobody_writes_into(venv, tmp_path):
    copy = tmp_path / "copy"
    copy_environment(venv, copy)

    linked = {}
    for path in venv.rglob("*"):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(venv)
            linked[name.as_posix()] = path.samefile(copy / name)
    assert {name for name, is_linked in linked.items() if not is_linked} == {
        "bin/torchrun",
        "pyvenv.cfg",
    }
    assert "notes.txt" in linked
    assert (copy / "bin" / "python").readlink() == Path(os.devnull)
    assert (copy / "pipe").is_fifo()


def test_what_cannot_be_copied_is_named_and_leaves_no_copy(venv, tmp_path, monkeypatch):
    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    monkeypatch.setattr(shutil, "copy2", full)

    with pytest.raises(InstallationError, match="No space left on device"):
        copy_environment(venv, tmp_path / "copy")

    assert not (tmp_path / "copy").exists()


@pytest.fixture
def existing(tmp_path):
    """An environment of ours with torch, and two packages that are in no lock and share a file."""
    paths = EnvironmentPaths(tmp_path / ".venv")
    make_environment(paths.venv, "ours")
    site = paths.venv / SITE
    put_package(site, "beside", {"shared/__init__.py": "", "shared/beside.py": ""})
    lock = parse("pylock.cu126.toml", lock_text())
    return ExistingEnvironment(
        paths,
        is_empty=False,
        marker=read_marker(paths.venv),
        lock=lock,
        packages={"torch": "2.14.1", "beside": "1.0"},
        has_python=True,
    )


def unchanged(existing):
    fit = SimpleNamespace(lock=existing.lock, choice=SimpleNamespace(python="3.12"))
    return unchanged_packages(existing, cast("Fit", fit))


def test_what_is_in_no_lock_is_taken_out_of_the_copy(existing):
    assert unchanged(existing) == {"torch"}
    assert leaving_packages(existing, {"torch"}) == ["beside"]


def test_nothing_stays_where_what_goes_shares_files_with_what_stays(existing):
    """To uninstall one of the two takes the other's file too."""
    site = existing.paths.venv / SITE
    shutil.rmtree(site / "torch-2.14.1.dist-info")
    put_package(
        site,
        "torch",
        {"shared/__init__.py": "", "torch/__init__.py": ""},
        version="2.14.1",
    )

    assert unchanged(existing) == frozenset()


def test_nothing_stays_where_the_packages_lie_behind_a_link(existing, tmp_path):
    """A change of the copy would be one of the environment itself."""
    library = existing.paths.venv / "lib"
    library.rename(tmp_path / "elsewhere")
    library.symlink_to(tmp_path / "elsewhere")

    assert unchanged(existing) == frozenset()
