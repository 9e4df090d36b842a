"""What the sources list, asked for real on loopback."""

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.catalog import DEFAULT_INDEX
from gpuinstall.catalog.listing import family_wheels, read_listing
from gpuinstall.sources import Sources
from gpuinstall.sources.web import Client
from tests.lab.index import Habits, StandInIndex
from tests.lab.releases import catalog_index
from tests.lab.wheels import make_wheel

TAGS = ("cpu", "cu126", "cu134")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The wheels of one release for two platforms."""
    return catalog_index(
        tmp_path_factory.mktemp("served"),
        ["2.14.1"],
        platforms=("linux-x86_64", "macos-arm64"),
        pythons=("3.12",),
    )


@pytest.fixture
def client(tmp_path):
    """A client with a cache of its own."""
    with Client(cache=tmp_path / "cache") as client:
        yield client


def _named(index, **more):
    return Sources(torch_index=index.torch_index, is_torch_index_requested=True, **more)


def _files(listing):
    return sorted(wheel.filename for wheel in listing.wheels)


@pytest.mark.parametrize(
    "habits", [Habits(), Habits(absolute=False), Habits(flat=True), Habits(json=True)]
)
def test_every_layout_lists_the_same_wheels(habits, folder, client):
    with StandInIndex(folder, habits) as index:
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


def test_silent_index_is_said_once_and_the_folder_still_serves(folder, client):
    with StandInIndex(folder) as index:
        sources = Sources(
            index.torch_index, find_links=(str(folder / "whl" / "cpu"), "file:///nowhere")
        )
    listing = read_listing(sources, client, TAGS, ["torch"])
    assert not listing.index_answers
    assert [silent.why for silent in listing.silent] == ["connection refused"]
    assert {wheel.source for wheel in listing.wheels} == {str(folder / "whl" / "cpu")}


def test_named_index_comes_before_folders_and_the_official_one_after_them(folder, client):
    place = str(folder / "whl" / "cu126")
    with StandInIndex(folder) as index:
        official = Sources(index.torch_index, find_links=(place,))
        assert read_listing(official, client, ["cu126"], ["torch"]).wheels[0].source == place
        named = _named(index, find_links=(place,))
        assert read_listing(named, client, ["cu126"], ["torch"]).wheels[-1].source == place


def test_configured_default_index_is_asked_and_comes_last(folder, client):
    with StandInIndex(folder) as index:
        sources = _named(index, default_index=index.default_index)
        listing = read_listing(sources, client, ["cu126"], ["torch"])
    assert listing.default_listed
    assert [wheel.source for wheel in listing.wheels] == [
        f"{index.torch_index}/cu126",
        DEFAULT_INDEX,
        DEFAULT_INDEX,
    ]
    assert all(wheel.sha256 for wheel in listing.wheels[1:])


def test_local_indexes_are_read_by_their_pages_or_their_files(folder, client, tmp_path):
    name = "torch-2.14.1-cp312-cp312-manylinux_2_28_x86_64.whl"
    (tmp_path / "simple" / "torch").mkdir(parents=True)
    (tmp_path / "simple" / "torch" / "index.html").write_text(
        f'<a href="../../files/{name}">x</a>', "utf-8"
    )
    (tmp_path / "links.html").write_text(f'<a href="files/{name}">x</a>', "utf-8")
    places = ((tmp_path / "links.html").as_uri(), str(folder / "simple"))
    sources = Sources(find_links=places, default_index=(tmp_path / "simple").as_uri())
    listing = read_listing(sources, client, [], ["torch"])
    found = [(wheel.source, wheel.url) for wheel in listing.wheels if wheel.filename == name]
    assert found == [
        (places[0], (tmp_path / "files" / name).as_uri()),
        (places[1], (folder / "simple" / name).as_uri()),
        (DEFAULT_INDEX, (tmp_path / "files" / name).as_uri()),
    ]


def test_family_package_is_listed_on_demand(folder, client):
    with StandInIndex(folder) as index:
        (triton,) = family_wheels(_named(index), client, "cu126", "triton")
        assert family_wheels(_named(index), client, "cpu", "triton") == ()
    assert (triton.package, str(triton.version), triton.sha256, triton.metadata) == (
        "triton",
        "3.8.0",
        None,
        True,
    )


def test_name_that_leads_out_stops_the_listing(client, tmp_path):
    make_wheel(tmp_path / "whl" / "cpu", "torch", "2.14.1", "cp312-cp312-win_amd64")
    (tmp_path / "whl/cpu/torch-2.14.1-cp312-cp312-win_amd64.whl").rename(
        tmp_path / "whl/cpu/torch-..\\x.whl"
    )
    with (
        StandInIndex(tmp_path) as index,
        pytest.raises(InstallationError, match="is outside its folder"),
    ):
        read_listing(_named(index), client, ["cpu"], ["torch"])
