"""What the sources list, asked for real on loopback; the catalogue's builds against it; the tags of real wheels."""

from pathlib import Path

import pytest
from packaging.tags import parse_tag
from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.versions import Backend, CudaVersion
from gpuinstall.catalog import DEFAULT_INDEX, Build
from gpuinstall.catalog.listing import (
    Listing,
    family_wheels,
    narrowed,
    offered,
    platform_floor,
    platforms,
    python,
    read_listing,
)
from gpuinstall.catalog.pages import parse_folder
from gpuinstall.sources import Sources
from gpuinstall.sources.web import Client
from tests.lab.index import Habits, StandInIndex
from tests.lab.own_sources import naming
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


def _named(index):
    return Sources(torch_index=index.torch_index, is_torch_index_requested=True)


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
        sources = naming(
            ("find-links", str(folder / "whl" / "cpu")),
            ("find-links", "file:///nowhere"),
            torch_index=index.torch_index,
        )
    listing = read_listing(sources, client, TAGS, ["torch"])
    assert not listing.index_answers
    assert [silent.why for silent in listing.silent] == ["connection refused"]
    assert {wheel.source for wheel in listing.wheels} == {str(folder / "whl" / "cpu")}


def test_named_index_comes_before_folders_and_the_official_one_after_them(
    folder, client
):
    place = str(folder / "whl" / "cu126")
    with StandInIndex(folder) as index:
        official = naming(("find-links", place), torch_index=index.torch_index)
        assert (
            read_listing(official, client, ["cu126"], ["torch"]).wheels[0].source
            == place
        )
        named = naming(("find-links", place), sources=_named(index))
        assert (
            read_listing(named, client, ["cu126"], ["torch"]).wheels[-1].source == place
        )


def test_configured_default_index_is_asked_and_comes_last(folder, client):
    with StandInIndex(folder) as index:
        sources = naming(("index-url", index.default_index), sources=_named(index))
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


INDEX = "https://index.example/whl"
ASKED = frozenset({"cpu", "cu126", "cu130"})


def _build(torch, backend, **facts):
    release, tag, pythons = Version(torch), Backend.parse(backend), ("3.11", "3.12")
    return Build(release, tag, "linux", "x86_64", pythons=pythons, **facts)


def _wheels(*names, source):
    return parse_folder(names, Path("/wheels"), source)


def _listed(torch, tag, python="312", platform="manylinux_2_28_x86_64"):
    name = f"torch-{torch}-cp{python}-cp{python}-{platform}.whl"
    return _wheels(name, source=f"{INDEX}/{tag}")


def _narrow(builds, listing):
    return list(narrowed(builds, listing, "linux_x86_64"))


def test_listed_build_keeps_its_facts_and_takes_the_pythons_that_are_there():
    build = _build("2.14.1", "cu126", glibc="2.28", toolkit=CudaVersion(12, 6))
    (found,) = _narrow([build], Listing(_listed("2.14.1+cu126", "cu126"), ASKED))
    assert (found.source, found.pythons, found.absent) == (
        f"{INDEX}/cu126",
        ("3.12",),
        None,
    )
    assert (found.glibc, found.toolkit) == ("2.28", CudaVersion(12, 6))


def test_build_that_the_index_no_longer_lists_is_withdrawn():
    (found,) = _narrow([_build("2.14.1", "cu126")], Listing((), ASKED))
    assert found.absent == "withdrawn"


def test_build_whose_tag_was_not_asked_for_stays_as_it_is():
    build = _build("2.14.1", "cu132")
    assert _narrow([build], Listing((), ASKED)) == [build]


def test_wheel_for_another_platform_does_not_count():
    wheels = _listed("2.14.1+cu126", "cu126", platform="win_amd64")
    (found,) = _narrow([_build("2.14.1", "cu126")], Listing(wheels, ASKED))
    assert found.absent == "withdrawn"


def test_builds_of_other_platforms_stay_as_they_are():
    build = Build(Version("2.14.1"), Backend.parse("cu126"), "windows", "x86_64")
    assert _narrow([build], Listing((), ASKED)) == [build]


def test_unverified_build_that_is_listed_may_be_chosen():
    (found,) = _narrow(
        [_build("2.15.0", "cu130", absent="unverified")],
        Listing(_listed("2.15.0+cu130", "x"), ASKED),
    )
    assert found.absent is None


def test_build_that_only_the_index_knows_is_marked_unknown():
    elsewhere = Build(Version("2.14.1"), Backend.parse("cu126"), "windows", "x86_64")
    _, found = _narrow([elsewhere], Listing(_listed("2.16.0+cu136", "cu136"), ASKED))
    assert (found.name, len(found.unread)) == ("2.16.0+cu136", 1)
    assert (found.toolkit, found.glibc) == (CudaVersion(13, 6), "2.28")


def test_prerelease_and_builds_of_a_kind_that_the_catalogue_has_none_of_are_not_added():
    wheels = (
        *_listed("2.16.0.dev20261101+cu130", "cu130"),
        *_listed("2.16.0+rocm7.2", "rocm7.2"),
    )
    known = Build(Version("2.14.1"), Backend.parse("cu126"), "windows", "x86_64")
    assert _narrow([known], Listing(wheels, ASKED)) == [known]


def test_two_sources_give_two_builds_the_first_source_first():
    wheels = (
        *_wheels("torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", source="/near"),
        *_listed("2.13.0+cpu", "cpu"),
    )
    near, far = _narrow([_build("2.13.0", "cpu")], Listing(wheels, ASKED))
    assert (near.source, near.pythons) == ("/near", ("3.11",))
    assert (far.source, far.pythons) == (f"{INDEX}/cpu", ("3.12",))


def test_silent_index_leaves_the_default_index_and_says_of_the_rest_that_it_is_unreachable():
    builds = [
        _build("2.14.1", "cu130", on_default_index=True),
        _build("2.14.1", "cu126"),
        _build("2.14.1", "cpu"),
    ]
    default, gone, cpu = _narrow(builds, Listing((), ASKED, index_answers=False))
    assert (default.source, default.absent, default.labelled) == (
        DEFAULT_INDEX,
        None,
        False,
    )
    assert (gone.absent, cpu.absent) == ("unreachable", "unreachable")


def test_default_index_serves_what_the_torch_index_has_withdrawn():
    (found,) = _narrow(
        [_build("2.14.1", "cu130", on_default_index=True)], Listing((), ASKED)
    )
    assert (found.source, found.absent) == (DEFAULT_INDEX, None)


def test_default_index_that_was_listed_is_believed():
    builds = [
        _build("2.14.1", "cu130", on_default_index=True),
        _build("2.15.0", "cu130", on_default_index=True),
    ]
    wheels = _wheels(
        "torch-2.15.0-cp312-cp312-manylinux_2_28_x86_64.whl", source=DEFAULT_INDEX
    )
    old, new = _narrow(builds, Listing(wheels, ASKED, default_listed=True))
    assert old.absent == "withdrawn"
    assert (new.source, new.pythons, new.labelled) == (DEFAULT_INDEX, ("3.12",), False)


def test_default_index_is_passed_over_where_another_source_has_the_build():
    wheels = (
        *_listed("2.15.0+cu130", "cu130"),
        *_wheels("torch-2.15.0-cp312-cp312-linux_x86_64.whl", source=DEFAULT_INDEX),
    )
    (found,) = _narrow(
        [_build("2.15.0", "cu130", on_default_index=True)],
        Listing(wheels, ASKED, default_listed=True),
    )
    assert found.source == f"{INDEX}/cu130"


def test_companions_are_offered_by_backend_and_platform():
    wheels = _wheels(
        "torchvision-0.29.2+cu126-cp312-cp312-win_amd64.whl",
        "torchvision-0.29.1+cu126-cp312-cp312-linux_x86_64.whl",
        source=INDEX,
    )
    listing = Listing(
        wheels, frozenset({"cpu", "cu126"}), frozenset({"torch", "torchvision"})
    )
    assert offered(listing, "linux_x86_64") == {
        ("torchvision", "cpu"): frozenset(),
        ("torchvision", "cu126"): {"0.29.1+cu126"},
    }


def test_pythons_are_in_order_without_free_threaded_ones():
    names = [
        f"torch-2.14.1+cpu-{tag}-linux_x86_64.whl"
        for tag in ("cp39-cp39", "cp313-cp313t", "cp313-cp313")
    ]
    (found,) = _narrow(
        [_build("2.14.1", "cpu")], Listing(_wheels(*names, source="/near"), ASKED)
    )
    assert found.pythons == ("3.9", "3.13")


@pytest.mark.parametrize(
    ("tag", "platform", "name", "floor"),
    [
        ("cp312-cp312-manylinux_2_28_x86_64", ("linux", "x86_64"), "3.12", "2.28"),
        ("cp313-cp313t-manylinux_2_28_aarch64", ("linux", "aarch64"), None, "2.28"),
        ("cp310-cp310-manylinux2014_aarch64", ("linux", "aarch64"), "3.10", None),
        ("cp37-cp37m-manylinux1_x86_64", ("linux", "x86_64"), "3.7", None),
        ("cp312-cp312-linux_x86_64", ("linux", "x86_64"), "3.12", None),
        ("cp311-cp311-win_amd64", ("windows", "x86_64"), "3.11", None),
        ("cp311-cp311-win_arm64", ("windows", "arm64"), "3.11", None),
        ("cp39-none-macosx_11_0_arm64", ("macos", "arm64"), "3.9", None),
    ],
)
def test_tag_of_a_torch_wheel(tag, platform, name, floor):
    tags = parse_tag(tag)
    assert (platforms(tags), python(tags), platform_floor(tags, "manylinux")) == (
        frozenset({"_".join(platform)}),
        name,
        floor,
    )


def test_lowest_of_several_glibc_floors_counts():
    tags = parse_tag("cp312-cp312-manylinux_2_28_x86_64.manylinux_2_5_x86_64")
    assert platform_floor(tags, "manylinux") == "2.5"


@pytest.mark.parametrize(
    "tag",
    ["py3-none-any", "cp38-abi3-manylinux_2_28_x86_64", "cp311.cp312-none-win_amd64"],
)
def test_wheel_for_many_pythons_names_none(tag):
    assert python(parse_tag(tag)) is None


@pytest.mark.parametrize(
    "tag",
    ["py3-none-any", "cp312-cp312-musllinux_1_2_x86_64", "cp312-cp312-linux_s390x"],
)
def test_platform_that_no_plan_is_made_for_is_none(tag):
    assert platforms(parse_tag(tag)) == frozenset()
