"""Listings of package sources, catalog builds, and wheel tags."""

from pathlib import Path

import pytest
from packaging.tags import parse_tag
from packaging.version import Version

from gpuinstall.base.versions import Backend, CudaVersion
from gpuinstall.catalog import DEFAULT_INDEX, Build
from gpuinstall.catalog.catalog import ConfiguredIndex
from gpuinstall.catalog.listing import (
    Listing,
    listed_companions,
    platform_floor,
    platforms,
    python,
    read_listing,
    update_builds,
)
from gpuinstall.catalog.pages import parse_folder
from gpuinstall.sources import Sources
from gpuinstall.sources.addresses import Addresses
from gpuinstall.sources.web import Client
from tests.lab.index import IndexBehavior, SimulatedIndex
from tests.lab.own_sources import naming
from tests.lab.releases import catalog_index

TAGS = ("cpu", "cu126", "cu134")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Create the wheels of one release for two platforms."""
    return catalog_index(
        tmp_path_factory.mktemp("served"),
        ["2.14.1"],
        platforms=("linux-x86_64", "macos-arm64"),
        pythons=("3.12",),
    )


@pytest.fixture
def client(tmp_path):
    """Create a client with its own cache."""
    with Client(cache=tmp_path / "cache") as client:
        yield client


def _named(index):
    return Sources(Addresses(index.torch_index, is_torch_index_requested=True))


def _files(listing):
    return sorted(wheel.filename for wheel in listing.wheels)


@pytest.mark.parametrize(
    "habits",
    [
        IndexBehavior(),
        IndexBehavior(absolute=False),
        IndexBehavior(flat=True),
        IndexBehavior(json=True),
    ],
)
def test_every_index_layout_lists_the_same_wheels(habits, folder, client):
    with SimulatedIndex(folder, habits) as index:
        listing = read_listing(_named(index), client, TAGS, ["torch"])
        assert {wheel.source for wheel in listing.wheels} == {
            f"{index.torch_index}/{tag}" for tag in ("cpu", "cu126")
        }
    assert listing.index_answers
    assert _files(listing) == [
        "torch-2.14.1+cpu-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.14.1+cu126-cp312-cp312-manylinux_2_28_x86_64.whl",
        "torch-2.14.1-cp312-none-macosx_11_0_arm64.whl",
    ]


def test_unreachable_index_is_reported_once(folder, client):
    with SimulatedIndex(folder) as index:
        sources = naming(
            ("find-links", str(folder / "whl" / "cpu")),
            ("find-links", "file:///nowhere"),
            addresses=Addresses(index.torch_index),
        )
    listing = read_listing(sources, client, TAGS, ["torch"])
    assert not listing.index_answers
    assert [silent.why for silent in listing.silent] == ["connection refused"]
    assert {wheel.source for wheel in listing.wheels} == {str(folder / "whl" / "cpu")}


def test_requested_index_precedes_find_links_folders(folder, client):
    place = str(folder / "whl" / "cu126")
    with SimulatedIndex(folder) as index:
        official = naming(("find-links", place), addresses=Addresses(index.torch_index))
        assert (
            read_listing(official, client, ["cu126"], ["torch"]).wheels[0].source
            == place
        )
        named = naming(("find-links", place), sources=_named(index))
        assert (
            read_listing(named, client, ["cu126"], ["torch"]).wheels[-1].source == place
        )


def test_default_index_is_listed_last(folder, client):
    with SimulatedIndex(folder) as index:
        sources = naming(("index-url", index.default_index), sources=_named(index))
        listing = read_listing(sources, client, ["cu126"], ["torch"])
    assert listing.default_listed
    assert [wheel.source for wheel in listing.wheels] == [
        f"{index.torch_index}/cu126",
        DEFAULT_INDEX,
        DEFAULT_INDEX,
    ]
    assert all(wheel.sha256 for wheel in listing.wheels[1:])


def test_local_html_pages_and_folders_are_listed(folder, client, tmp_path):
    name = "torch-2.14.1-cp312-cp312-manylinux_2_28_x86_64.whl"
    (tmp_path / "simple" / "torch").mkdir(parents=True)
    (tmp_path / "simple" / "torch" / "index.html").write_text(
        f'<a href="../../files/{name}">x</a>', "utf-8"
    )
    (tmp_path / "links.html").write_text(f'<a href="files/{name}">x</a>', "utf-8")
    places = ((tmp_path / "links.html").as_uri(), str(folder / "simple"))
    sources = naming(
        *(("find-links", place) for place in places),
        ("index-url", (tmp_path / "simple").as_uri()),
    )
    listing = read_listing(sources, client, [], ["torch"])
    found = [
        (wheel.source, wheel.url) for wheel in listing.wheels if wheel.filename == name
    ]
    assert found == [
        (places[0], (tmp_path / "files" / name).as_uri()),
        (places[1], (folder / "simple" / name).as_uri()),
        (DEFAULT_INDEX, (tmp_path / "files" / name).as_uri()),
    ]


INDEX = "https://index.example/whl"
ASKED = frozenset({"cpu", "cu126", "cu130"})
BOTH, NEW = ("3.11", "3.12"), ("3.12",)
"""The Pythons of a build in the catalog, and of the wheels below."""


def _build(torch, backend, os="linux", **facts):
    tag = Backend.parse(backend)
    return Build(Version(torch), tag, os, "x86_64", pythons=BOTH, **facts)


def _wheels(*names, source):
    return parse_folder(names, Path("/wheels"), source)


def _listed(torch, tag="", platform="manylinux_2_28_x86_64"):
    """Return a wheel of the torch index, or a default one without a tag."""
    name = f"torch-{torch}-cp312-cp312-{platform}.whl"
    return _wheels(name, source=f"{INDEX}/{tag}" if tag else DEFAULT_INDEX)


CU126, CU130 = _build("2.14.1", "cu126"), _build("2.14.1", "cu130")
DEFAULT = _build("2.14.1", "cu130", on_default_index=True)
NEWER_DEFAULT = _build("2.15.0", "cu130", on_default_index=True)
UNVERIFIED = _build("2.15.0", "cu130", absent="unverified")
OF_WINDOWS = _build("2.14.1", "cu126", "windows")
TORCH = ConfiguredIndex.TORCH
SILENT = {"index_answers": False}
ALL = {"default_listed": True}


@pytest.mark.parametrize(
    ("builds", "wheels", "listing", "narrowed_to"),
    [
        # Listed builds have the Pythons of their wheels.
        (
            [CU126],
            _listed("2.14.1+cu126", "cu126"),
            {},
            [(f"{INDEX}/cu126", NEW, None)],
        ),
        ([UNVERIFIED], _listed("2.15.0+cu130", "x"), {}, [(f"{INDEX}/x", NEW, None)]),
        # A build that is missing, or exists only for another platform, is withdrawn.
        ([CU126], (), {}, [(TORCH, BOTH, "withdrawn")]),
        (
            [CU126],
            _listed("2.14.1+cu126", "cu126", platform="win_amd64"),
            {},
            [(TORCH, BOTH, "withdrawn")],
        ),
        # A build of a page that was not requested is unchanged.
        ([_build("2.14.1", "cu132")], (), {}, [(TORCH, BOTH, None)]),
        ([OF_WINDOWS], (), {}, [(TORCH, BOTH, None)]),
        # Prereleases and unknown kinds of builds are not added.
        (
            [OF_WINDOWS],
            _listed("2.16.0.dev20261101+cu130", "cu130"),
            {},
            [(TORCH, BOTH, None)],
        ),
        (
            [OF_WINDOWS],
            _listed("2.16.0+rocm7.2", "rocm7.2"),
            {},
            [(TORCH, BOTH, None)],
        ),
        # Two sources result in two builds, in the order of the sources.
        (
            [CU126],
            (
                *_wheels(
                    "torch-2.14.1+cu126-cp311-cp311-linux_x86_64.whl", source="/near"
                ),
                *_listed("2.14.1+cu126", "cu126"),
            ),
            {},
            [("/near", ("3.11",), None), (f"{INDEX}/cu126", NEW, None)],
        ),
        # Without the torch index, only the default index is available.
        ([DEFAULT], (), SILENT, [(DEFAULT_INDEX, BOTH, None)]),
        ([CU126], (), SILENT, [(TORCH, BOTH, "unreachable")]),
        # The default index has withdrawn builds unless it was listed.
        ([DEFAULT], (), {}, [(DEFAULT_INDEX, BOTH, None)]),
        (
            [DEFAULT, NEWER_DEFAULT],
            _listed("2.15.0"),
            ALL,
            [(TORCH, BOTH, "withdrawn"), (DEFAULT_INDEX, NEW, None)],
        ),
        # Other sources take precedence over the default index.
        (
            [NEWER_DEFAULT],
            (*_listed("2.15.0+cu130", "cu130"), *_listed("2.15.0")),
            ALL,
            [(f"{INDEX}/cu130", NEW, None)],
        ),
        # Pythons are sorted and exclude free-threaded ones.
        (
            [CU126],
            _wheels(
                *(
                    f"torch-2.14.1+cu126-{tag}-linux_x86_64.whl"
                    for tag in ("cp39-cp39", "cp313-cp313t", "cp313-cp313")
                ),
                source="/near",
            ),
            {},
            [("/near", ("3.9", "3.13"), None)],
        ),
    ],
)
def test_catalog_builds_are_limited_to_listed_wheels(
    builds, wheels, listing, narrowed_to
):
    found = update_builds(builds, Listing(wheels, ASKED, **listing), "linux_x86_64")

    assert [(build.source, build.pythons, build.absent) for build in found] == (
        narrowed_to
    )
    # Files of the default index have no label.
    assert all(build.is_labeled == (build.source != DEFAULT_INDEX) for build in found)


def test_listed_build_keeps_catalog_glibc_and_toolkit():
    build = _build("2.14.1", "cu126", glibc="2.28", toolkit=CudaVersion(12, 6))
    listing = Listing(_listed("2.14.1+cu126", "cu126"), ASKED)
    (found,) = update_builds([build], listing, "linux_x86_64")
    assert (found.glibc, found.toolkit) == ("2.28", CudaVersion(12, 6))


def test_build_without_catalog_entry_is_unknown():
    listing = Listing(_listed("2.16.0+cu136", "cu136"), ASKED)
    _, found = update_builds([OF_WINDOWS], listing, "linux_x86_64")
    assert (found.name, len(found.unread)) == ("2.16.0+cu136", 1)
    assert (found.toolkit, found.glibc) == (CudaVersion(13, 6), "2.28")


def test_companions_are_listed_by_backend_and_platform():
    wheels = _wheels(
        "torchvision-0.29.2+cu126-cp312-cp312-win_amd64.whl",
        "torchvision-0.29.1+cu126-cp312-cp312-linux_x86_64.whl",
        source=INDEX,
    )
    listing = Listing(
        wheels, frozenset({"cpu", "cu126"}), frozenset({"torch", "torchvision"})
    )
    assert listed_companions(listing, "linux_x86_64") == {
        ("torchvision", ""): frozenset(),
        ("torchvision", "cpu"): frozenset(),
        ("torchvision", "cu126"): {"0.29.1+cu126"},
    }


@pytest.mark.parametrize(
    ("tag", "platform", "name", "floor"),
    [
        ("cp312-cp312-manylinux_2_28_x86_64", "linux_x86_64", "3.12", "2.28"),
        ("cp313-cp313t-manylinux_2_28_aarch64", "linux_aarch64", None, "2.28"),
        ("cp310-cp310-manylinux2014_aarch64", "linux_aarch64", "3.10", None),
        ("cp37-cp37m-manylinux1_x86_64", "linux_x86_64", "3.7", None),
        ("cp312-cp312-linux_x86_64", "linux_x86_64", "3.12", None),
        ("cp311-cp311-win_amd64", "windows_x86_64", "3.11", None),
        ("cp311-cp311-win_arm64", "windows_arm64", "3.11", None),
        ("cp39-none-macosx_11_0_arm64", "macos_arm64", "3.9", None),
        # The lowest of several floors counts.
        (
            "cp312-cp312-manylinux_2_28_x86_64.manylinux_2_5_x86_64",
            "linux_x86_64",
            "3.12",
            "2.5",
        ),
        # A wheel for several Pythons lists none. Some platforms are unsupported.
        ("cp38-abi3-manylinux_2_28_x86_64", "linux_x86_64", None, "2.28"),
        ("cp311.cp312-none-win_amd64", "windows_x86_64", None, None),
        ("py3-none-any", None, None, None),
        ("cp312-cp312-musllinux_1_2_x86_64", None, "3.12", None),
        ("cp312-cp312-linux_s390x", None, "3.12", None),
    ],
)
def test_wheel_tag_is_parsed(tag, platform, name, floor):
    tags = parse_tag(tag)
    assert (platforms(tags), python(tags), platform_floor(tags, "manylinux")) == (
        frozenset({platform} - {None}),
        name,
        floor,
    )
