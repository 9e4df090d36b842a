"""The catalogue's builds against what the sources list."""

from pathlib import Path

from packaging.version import Version

from gpuinstall.base.backend import Backend
from gpuinstall.base.versions import CudaVersion
from gpuinstall.catalog import DEFAULT_INDEX, Build
from gpuinstall.catalog.listing import Listing
from gpuinstall.catalog.narrowing import narrowed, offered
from gpuinstall.catalog.pages import parse_folder

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
    return list(narrowed(builds, listing, "linux", "x86_64"))


def test_listed_build_keeps_its_facts_and_takes_the_pythons_that_are_there():
    build = _build("2.14.1", "cu126", glibc="2.28", toolkit=CudaVersion(12, 6))
    (found,) = _narrow([build], Listing(_listed("2.14.1+cu126", "cu126"), ASKED))
    assert (found.source, found.pythons, found.absent) == (f"{INDEX}/cu126", ("3.12",), None)
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
        [_build("2.15.0", "cu130", confidence="unverified")],
        Listing(_listed("2.15.0+cu130", "x"), ASKED),
    )
    assert found.confidence == "low"


def test_build_that_only_the_index_knows_is_marked_unknown():
    elsewhere = Build(Version("2.14.1"), Backend.parse("cu126"), "windows", "x86_64")
    _, found = _narrow([elsewhere], Listing(_listed("2.16.0+cu136", "cu136"), ASKED))
    assert (found.name, len(found.unread)) == ("2.16.0+cu136", 1)
    assert (found.toolkit, found.glibc) == (CudaVersion(13, 6), "2.28")


def test_prerelease_and_builds_of_a_kind_that_the_catalogue_has_none_of_are_not_added():
    wheels = (*_listed("2.16.0.dev20261101+cu130", "cu130"), *_listed("2.16.0+rocm7.2", "rocm7.2"))
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
    assert (default.source, default.absent, default.labelled) == (DEFAULT_INDEX, None, False)
    assert (gone.absent, cpu.absent) == ("unreachable", "unreachable")


def test_default_index_serves_what_the_torch_index_has_withdrawn():
    (found,) = _narrow([_build("2.14.1", "cu130", on_default_index=True)], Listing((), ASKED))
    assert (found.source, found.absent) == (DEFAULT_INDEX, None)


def test_default_index_that_was_listed_is_believed():
    builds = [
        _build("2.14.1", "cu130", on_default_index=True),
        _build("2.15.0", "cu130", on_default_index=True),
    ]
    wheels = _wheels("torch-2.15.0-cp312-cp312-manylinux_2_28_x86_64.whl", source=DEFAULT_INDEX)
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
    listing = Listing(wheels, frozenset({"cpu", "cu126"}), frozenset({"torch", "torchvision"}))
    assert offered(listing, "linux", "x86_64") == {
        ("torchvision", "cpu"): frozenset(),
        ("torchvision", "cu126"): {"0.29.1+cu126"},
    }


def test_pythons_are_in_order_and_tell_free_threaded_ones():
    names = [
        f"torch-2.14.1+cpu-{tag}-linux_x86_64.whl"
        for tag in ("cp39-cp39", "cp313-cp313t", "cp313-cp313")
    ]
    (found,) = _narrow([_build("2.14.1", "cpu")], Listing(_wheels(*names, source="/near"), ASKED))
    assert found.pythons == ("3.9", "3.13", "3.13t")
