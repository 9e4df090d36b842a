"""Tests that malicious wheels leave the environment unchanged."""

import os
import stat
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from tests.frozen import GPUINSTALL
from tests.lab.bounded import find_run_fault, run
from tests.lab.driver import NO_GPU
from tests.lab.wheels import make_wheel

INFO = "filelock-9.9.dist-info"


def _read(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write(wheel, files):
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)


def adding(name, data=b"evil"):
    """Return a change that adds an entry to a wheel."""

    def craft(wheel):
        with zipfile.ZipFile(wheel, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, data)

    return craft


def changed(name, change):
    """Return a change to one metadata file of a wheel."""

    def craft(wheel):
        files = _read(wheel)
        files[f"{INFO}/{name}"] = change(files.get(f"{INFO}/{name}", b""))
        _write(wheel, files)

    return craft


def without(name):
    return lambda wheel: _write(
        wheel,
        {key: data for key, data in _read(wheel).items() if key != f"{INFO}/{name}"},
    )


def halved(wheel):
    """Keep the first half of a wheel's bytes."""
    data = wheel.read_bytes()
    wheel.write_bytes(data[: len(data) // 2])


def linked(wheel):
    """Add a link to a folder outside a wheel, and a file in it."""
    link = zipfile.ZipInfo("filelock/out")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    adding(link, "../../../../../..")(wheel)
    adding("filelock/out/victim")(wheel)


def bomb(wheel):
    adding("filelock/bomb", b"0" * 200_000_000)(wheel)


KINDS: dict[str, Callable[[Path], None]] = {
    "an entry that leads out": adding("../victim"),
    "an absolute entry": adding("/tmp/torture-evil"),  # noqa: S108  a malicious wheel's entry
    "an entry with backslashes": adding("..\\..\\victim"),
    "an entry of data that leads out": adding("filelock-9.9.data/data/../../../victim"),
    "a script in the place of the interpreter": adding(
        "filelock-9.9.data/scripts/python", b"#!/bin/false\n"
    ),
    "a link that leads out": linked,
    "a file twice": adding(
        f"{INFO}/METADATA", b"Metadata-Version: 2.1\nName: evil\nVersion: 1\n"
    ),
    "a bomb": bomb,
    "a name without end": adding("filelock/" + "x" * 5000),
    "no metadata": without("METADATA"),
    "no record": without("RECORD"),
    "another name in its metadata": changed(
        "METADATA", lambda data: data.replace(b"filelock", b"evil")
    ),
    "ten thousand demands": changed(
        "METADATA",
        lambda data: (
            data
            + b"".join(b"Requires-Dist: evil-%d\n" % number for number in range(10_000))
        ),
    ),
    "a record of what is not there": changed(
        "RECORD", lambda data: data + b"../victim,sha256=x,1\n"
    ),
    "entry points in the place of programs": changed(
        "entry_points.txt",
        lambda _: b"[console_scripts]\npython = evil:main\n../../victim = evil:main\n",
    ),
    "cut in half": halved,
}


HOSTILE = {
    "settings": {"settings-1.0.data/data/pyvenv.cfg": "home = /evil"},
    "record": {
        "record-1.0.data/purelib/torch-2.8.3.dist-info/METADATA": "Name: torch\nVersion: 2.8.3\n"
    },
}


@pytest.fixture
def here(workshop, stand_in_folder):
    for name, modules in HOSTILE.items():
        make_wheel(stand_in_folder / "simple", name, "1.0", modules=modules)
    return workshop


def make_app(here):
    """Create an application's environment with uv."""
    venv = here.folder / "app"
    words = (uv.uv(), "venv", "--no-project", "--python", sys.executable, venv)
    process.run(words, env=here.environment)
    return venv


@pytest.mark.heavy
def test_wheel_with_foreign_files_is_not_installed(here):
    here.document("install", "--backend", "cpu", "numpy")
    before = (here.folder / ".venv" / "gpuinstall.json").read_text()
    wrong = {}
    for name in HOSTILE:
        error = here.refusal("install", name, exit_code=4)
        if error["code"] != "foreign-files" or f"'{name}!=1.0'" not in error["hint"]:
            wrong[name] = error
    assert wrong == {}
    assert (here.folder / ".venv" / "gpuinstall.json").read_text() == before


@pytest.mark.heavy
def test_foreign_files_are_removed_from_unmanaged_environments(here):
    venv = make_app(here)
    settings = (venv / "pyvenv.cfg").read_text()
    into = ("install", "--into", "--venv", "app", "settings", "--backend", "cpu")
    error = here.refusal(*into, exit_code=4)
    assert error["code"] == "foreign-files"
    assert (venv / "pyvenv.cfg").read_text() == settings


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", KINDS)
def test_malicious_wheel_cannot_write_outside_environment(
    here, stand_in_folder, play, kind
):
    play(NO_GPU)
    KINDS[kind](make_wheel(stand_in_folder / "simple", "filelock", "9.9"))
    victim = here.folder.parent / "victim"
    victim.write_text("mine", "utf-8")
    make_app(here)
    faults = []
    beside = names(here.folder.parent)
    for words in (("install",), ("install", "--into", "--venv", "app")):
        before = names(here.folder)
        command = [*GPUINSTALL, *words, "torch==2.14.1"]
        ended = run(command, here.environment, here.folder)
        left = names(here.folder) ^ before if ended.status else set()
        touched = names(here.folder.parent) - names(here.folder) ^ beside - before
        fault = find_run_fault(ended, {0, 3, 4, 5}, ", ".join({*left, *touched}))
        if fault or victim.read_text("utf-8") != "mine":
            faults.append((words, fault))

    assert faults == []


def names(folder):
    """Return all files in a folder except caches, bytecode, and uv's lock."""
    apart = {"__pycache__", ".lock", "caches", "served"}
    found: set[str] = set()
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in apart]
        found.update(f"{place}/{name}" for name in files if name not in apart)
    return found
