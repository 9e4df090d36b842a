"""Rows of wheels are cached by URL and hash, and a damaged row is ignored."""

from datetime import datetime, timedelta, timezone

import pytest
from msgspec import json
from packaging.utils import parse_wheel_filename

from gpuinstall.base.cache import JsonCache
from gpuinstall.base.values import replace
from gpuinstall.catalog import Wheel, load_catalog
from gpuinstall.wheels.learned.row import READING, Depth, WheelRow
from gpuinstall.wheels.learned.store import (
    RowCache,
    current_time,
    load_extended_catalog,
)
from gpuinstall.wheels.needs import TorchNeeds
from gpuinstall.wheels.package import LibraryCode

NAME = "torch-2.16.0+cu140-cp312-cp312-manylinux_2_28_x86_64.whl"
ROW = WheelRow(
    package="torch",
    version="2.16.0",
    backend="cu140",
    platform="linux-x86_64",
    file=NAME,
    url=f"https://index.example/whl/cu140/{NAME}",
    size=500,
    bytes=7,
    learned="2026-11-20T10:00:00+00:00",
    codes=(
        LibraryCode("torch/lib/libtorch_python.so", ("sm_80", "sm_90a", "compute_90")),
    ),
    depth=Depth.PART,
    cuda="14.0",
    requires=(
        'nvidia-cudnn-cu14==9.30.1.2; platform_system == "Linux"',
        "filelock",
        "not a requirement !",
    ),
    pythons=("3.12",),
    glibc="2.28",
    source="https://index.example/whl/cu140",
    is_labeled=True,
)


def wheel(sha256=None):
    _, version, _, tags = parse_wheel_filename(NAME)
    return Wheel("torch", version, NAME, ROW.url, tags, sha256)


def test_cached_row_survives_a_round_trip(tmp_path):
    cache = JsonCache(tmp_path, WheelRow)
    fits_none = replace(
        ROW, torch=TorchNeeds("ordinary", fits=(), judged=("2.9", "2.10"))
    )
    stable = replace(ROW, torch=TorchNeeds("stable", oldest="2.9"))
    for row in (ROW, fits_none, stable):
        cache.put("wheel", row)
        assert cache.get("wheel") == row


def test_cached_row_is_converted_to_build():
    build = ROW.build()

    assert (build.name, build.os, build.arch, build.code) == (
        "2.16.0+cu140",
        "linux",
        "x86_64",
        ROW.architectures,
    )
    assert (build.toolkit, build.libraries) == ((14, 0), (("cudnn", "9.30.1.2"),))
    assert (build.learned, build.index("https://other.example"), build.is_labeled) == (
        "2026-11-20",
        ROW.source,
        True,
    )
    assert ROW.base == "https://index.example/whl"


@pytest.mark.parametrize("sha256", [None, "a" * 64])
def test_cached_row_belongs_to_one_wheel(tmp_path, sha256):
    store, own = RowCache(tmp_path), wheel(sha256)
    row = replace(ROW, sha256=sha256, learned=current_time())
    store.put(row, own, "cu140")

    assert store.get(own, "cu140", Depth.PART) == row
    assert store.get(own, "cu140", Depth.WHOLE) is None
    assert list(store.torch_rows()) == [row]
    assert store.get(own, "cu132", Depth.PART) is None
    assert store.get(wheel("b" * 64), "cu140", Depth.PART) is None
    elsewhere = replace(own, url=f"https://other.example/{NAME}")
    assert store.get(elsewhere, "cu140", Depth.PART) is None


HASH = "a" * 64
TEXT = json.encode(replace(ROW, sha256=HASH)).decode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TEXT, ""),
        (TEXT, "not JSON"),
        ('"sm_80"', "80"),
        (f'"reading":{READING}', '"reading":1'),
    ],
)
def test_damaged_cache_row_is_ignored(tmp_path, old, new):
    store = RowCache(tmp_path)
    store.put(replace(ROW, sha256=HASH), wheel(HASH), "cu140")
    (file,) = (tmp_path / "builds").iterdir()
    assert old in TEXT
    file.write_text(TEXT.replace(old, new))

    assert store.get(wheel(HASH), "cu140", Depth.PART) is None
    assert list(store.torch_rows()) == []


@pytest.mark.parametrize(
    ("hours", "sha256", "is_held"),
    [(0, None, True), (25, None, False), (-25, None, False), (25, "a" * 64, True)],
)
def test_cached_row_without_hash_expires_after_day(tmp_path, hours, sha256, is_held):
    learned = datetime.now(timezone.utc) - timedelta(hours=hours)
    row = replace(ROW, learned=learned.isoformat(timespec="seconds"), sha256=sha256)
    store, own = RowCache(tmp_path), wheel(sha256)
    store.put(row, own, "cu140")

    assert (store.get(own, "cu140", Depth.PART) == row) is is_held


OFFICIAL = load_catalog().torch_index
OTHER = "https://index.example/simple"


@pytest.mark.parametrize("requested", [None, OFFICIAL])
@pytest.mark.parametrize("stranger", [ROW, replace(ROW, source="", index=OTHER)])
def test_other_index_does_not_affect_official_builds(tmp_path, stranger, requested):
    store = RowCache(tmp_path)
    store.put(replace(stranger, learned=current_time()), wheel(), "cu140")
    own = replace(
        ROW,
        codes=(LibraryCode("torch/lib/libtorch_python.so", ("sm_90",)),),
        url=f"{OFFICIAL}/cu140/{NAME}",
        source=f"{OFFICIAL}/cu140",
    )
    store.put(own, replace(wheel(), url=own.url), "cu140")

    builds = load_extended_catalog(requested, store).builds
    (build,) = (build for build in builds if build.learned)

    assert build.code == ("sm_90",)


def test_learned_build_of_another_index_is_ignored(tmp_path):
    store = RowCache(tmp_path)
    row = replace(ROW, source="", index=OTHER)
    store.put(row, wheel(), "cu140")
    assert not [
        build
        for build in load_extended_catalog(OFFICIAL, store).builds
        if build.learned
    ]
