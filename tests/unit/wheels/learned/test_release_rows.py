"""Catalog rows printed for new releases."""

import os
import subprocess
import sys

import pytest
import tomli
from tools.catalog_check import find_errors
from tools.learn_release import (
    DATA,
    CompanionRow,
    extend_catalog,
    extend_kind,
    find_additions,
)

from gpuinstall.api import load_catalog
from gpuinstall.base.values import replace
from gpuinstall.catalog.data_files import read_data
from gpuinstall.catalog.loader import Rows, code_names
from gpuinstall.wheels.package import LibraryCode
from tests.lab.clone import ROOT
from tests.unit.wheels.learned.test_store import ROW

TRITON = ("triton~=3.9.0; platform_system == 'Linux'", *ROW.requires[:1])
SM_110 = (LibraryCode("torch/lib/libtorch_python.so", ("sm_110",)),)
NEW = replace(ROW, version="9.1.0", requires=TRITON)
ARM = replace(NEW, platform="linux-aarch64", codes=SM_110, source="", backend="cu139")
CPU = replace(NEW, backend="cpu", codes=(), cuda=None)


def test_learned_release_is_printed_as_catalog_row():
    arm = replace(NEW, platform="linux-aarch64", codes=SM_110)
    found = find_additions([NEW, arm, CPU], load_catalog())
    (row,) = tomli.loads(f"builds = [\n{found.builds}\n]")["builds"]

    assert (row["torch"], row["tag"], row["toolkit"], row["cudnn"]) == (
        "9.1.0",
        "cu140",
        "14.0",
        "9.30.1.2",
    )
    assert code_names(row["linux_x86_64"][0]) == NEW.architectures
    assert row["linux_aarch64"] == ["110", "high", "LEARNED-2026-11-20"]
    assert set(tomli.loads(found.evidence)) == {"LEARNED-2026-11-20"}


def test_printed_row_is_loaded_from_the_catalog():
    before = DATA.read_text("utf-8")
    after = extend_catalog(before, find_additions([NEW, ARM, CPU], load_catalog()))
    rows = Rows(tomli.loads(after))
    new = {
        build.name: build
        for build in rows.builds()
        if str(build.torch) == "9.1.0" and build.toolkit
    }

    assert after.startswith(before.partition("\n]\n")[0])
    assert sorted(new) == ["9.1.0+cu139", "9.1.0+cu140"]
    assert new["9.1.0+cu139"].on_default_index
    assert (new["9.1.0+cu140"].code, new["9.1.0+cu140"].pythons) == (
        NEW.architectures,
        ("3.12",),
    )
    assert rows.releases["9.1.0"].triton == "~=3.9.0"
    assert extend_catalog(after, find_additions([], load_catalog())) == after


def test_printed_rows_do_not_contradict_each_other():
    rocm = replace(NEW, backend="rocm9.0", cuda=None)
    found = find_additions(
        [NEW, rocm],
        load_catalog(),
        [
            CompanionRow("torchvision", "0.99.0", "9.1.0", ("any",), ("linux_x86_64",)),
            CompanionRow("torchvision", "0.98.0", "9.0.0", ("any",), ("linux_x86_64",)),
            CompanionRow("torchaudio", "2.99.0", None, ("3.12",), ("linux_x86_64",)),
        ],
    )
    kind = DATA.with_name("amd.toml").read_text("utf-8")
    files = {
        "builds.toml": extend_catalog(DATA.read_text("utf-8"), found),
        "amd.toml": extend_kind(kind, "rocm", found),
    }

    def read(name):
        return tomli.loads(files[name]) if name in files else read_data(name)

    assert [*find_errors(read)] == []
    release = Rows(read("builds.toml")).releases["9.1.0"]
    assert (release.torchvision, release.torchaudio) == (("0.99.0",), ("2.99.0",))
    assert read("amd.toml")["builds"][-1]["torch"] == "9.1"


def test_known_release_is_not_printed():
    build = next(
        build for build in load_catalog().builds if build.toolkit and not build.absent
    )
    same = replace(
        NEW,
        version=str(build.torch),
        backend=build.backend.tag,
        platform=f"{build.os}-{build.arch}",
    )

    assert str(find_additions([same], load_catalog())) == ""


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("words", "status", "output"),
    [
        (("--help",), 0, "usage:"),
        (("9.1.0",), 1, "cannot be reached"),
    ],
)
def test_release_tool_reports_an_unreachable_index(words, status, output):
    own = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": ""}
    done = subprocess.run(
        [sys.executable, "-m", "tools.learn_release", *words],
        cwd=ROOT,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == status, done.stderr
    assert output in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
