"""Which file of an extension beside which torch: of a stand-in of its index, with libraries compiled here."""

import pytest

from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.values import replace
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.extensions import (
    Beside,
    list_files,
    load_extensions,
)
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.solve.extensions import ExtensionChooser, choose_prebuilt
from gpuinstall.lock.solve.problem import pose
from gpuinstall.machine.words import machine_in_words
from gpuinstall.sources import read_sources
from gpuinstall.sources.session import open_session
from gpuinstall.sources.web import Client
from gpuinstall.wheels.learned.reader import Reader, reader_for
from gpuinstall.wheels.learned.store import LearnedStore
from tests.lab.extension_index import ExtensionIndex
from tests.lab.native import GONE, native_library
from tests.unit.wheels.made import fatbin
from tests.unit.wheels.test_needs import (
    FROM_2_9,
    FROM_2_10,
    OF_TORCH,
    STABLE_FROM_2_13,
    UNTIL_2_8,
    UNTIL_2_11,
)

CODE = fatbin((2, 80, 0), (2, 90, 0)) * 3
CU12 = ("libtorch.so", "libc10.so", "libcudart.so.12")
RTX_3090 = ("RTX 3090", "550")


@pytest.fixture
def index():
    index = ExtensionIndex()
    host = index.host()
    index.url = host.url
    yield index
    host.close()


def choice(
    index,
    folder,
    machine=RTX_3090,
    name="flash-attn",
    form="",
):
    """Choose as the command does, with the stand-in in Astral's place."""
    sources = read_sources(None, {}, folder)
    with Client(sources.certificates, logins={}) as client:
        reader = Reader(sources, client, LearnedStore(folder / "learned"), Reporter())
        problem = lock_problem(machine)
        chooser = ExtensionChooser(
            problem,
            lambda wheel, build, depth: reader.companion(
                wheel, build.backend, "linux-x86_64", depth
            ),
        )
        places = [
            Beside(build.minor, build.backend.tag, build.os) for build in problem.builds
        ]
        row = extension(index, name, form)
        return chooser.choose(row, list_files(row, places, sources, client).files)


def extension(index, name, form=""):
    row = load_extensions().rows[name]
    astral = (
        load_extensions()
        .sources["astral"]
        ._replace(url=f"{index.url}/simple/{form}{{backend}}/{{name}}/")
    )
    return row._replace(sources=(astral,))


def lock_problem(machine):
    there = replace(machine_in_words((machine[0],), machine[1]), glibc="2.35")
    request = Request(("torch", "flash-attn"), python="3.12")
    wanted = LockRequest(there, request, load_catalog())
    return pose(wanted, wanted.plan)


def library(folder, *undefined, needs=CU12, **how):
    """A library of its own, for sm_80 and sm_90 unless told otherwise."""
    file = folder / f"{len(list(folder.glob('*.so')))}.so"
    return native_library(
        file, undefined=undefined, needs=needs, **{"code": CODE, **how}
    )


def reasons(found):
    return {
        rejection.reason.code: rejection.reason.message for rejection in found.rejected
    }


def test_what_is_read_of_an_extension_counts_for_its_lock(index, tmp_path):
    good = library(tmp_path, FROM_2_10, UNTIL_2_11)
    index.add(
        "cu126", "flash-attn", "cu.12.6.torch.2.11", good, requires="torch==2.11.*"
    )
    with open_session(read_sources(None, {}, tmp_path), Reporter()) as session:
        found = choose_prebuilt(
            extension(index, "flash-attn"),
            lock_problem(RTX_3090),
            session,
            parse_requirement("flash-attn"),
        )
        assert found.fit
        assert reader_for(session).bytes_read == found.fit.row.bytes > 0


def test_the_right_minor_is_chosen_although_a_newer_torch_would_run(index, tmp_path):
    good = library(tmp_path, FROM_2_10, UNTIL_2_11)
    name = index.add(
        "cu126", "flash-attn", "cu.12.6.torch.2.11", good, requires="torch==2.11.*"
    )

    found = choice(index, tmp_path)

    assert found.fit
    assert (
        found.fit.file.wheel.filename,
        str(found.fit.build.torch),
        found.fit.build.backend.tag,
    ) == (
        name,
        "2.11.0",
        "cu126",
    )
    assert found.fit.file.wheel.sha256
    assert found.fit.row.architectures == ("sm_80", "sm_90")
    assert lock_problem(RTX_3090).builds[0].torch > found.fit.build.torch


def test_what_metadata_requires_on_another_system_does_not_count(index, tmp_path):
    good = library(tmp_path, FROM_2_10, UNTIL_2_11)
    on_windows = "torch==2.9.* ; sys_platform == 'win32'"
    index.add("cu126", "flash-attn", "cu.12.6.torch.2.11", good, requires=on_windows)

    assert choice(index, tmp_path).fit


LIES = {
    "another minor": (
        "misfit",
        "is incompatible with torch 2.12.1+cu126: its code works with torch 2.10 to 2.11",
    ),
    "no torch": (
        "misfit",
        "is incompatible with torch 2.12.1+cu126: its code works with no torch that is known",
    ),
    "a newer stable interface": (
        "misfit",
        "is incompatible with torch 2.12.1+cu126: its code works with torch 2.13 and newer",
    ),
    "a newer glibc": (
        "misfit",
        "its code requires glibc 2.38, and this system has 2.35",
    ),
    "another CUDA": (
        "misfit",
        "does not run on driver 550: flash_attn/_C.so is built with CUDA 13",
    ),
    "no code for the card": ("misfit", "has no code for GeForce RTX 3090"),
    "METADATA of another torch": (
        "misfit",
        "its METADATA requires torch==2.10.*, not torch 2.12",
    ),
    "METADATA of another version": ("not-read", "METADATA names version 2.8.3+other"),
    "pieces of a file": ("not-read", "cannot be read"),
}


def liar(folder, lie):
    how: dict[str, object] = {}
    names = {
        "another minor": (FROM_2_10, UNTIL_2_11),
        "no torch": (UNTIL_2_8, FROM_2_9, GONE),
        "a newer stable interface": (STABLE_FROM_2_13,),
    }.get(lie, (FROM_2_10,))
    if lie == "a newer glibc":
        how["glibc"] = "2.38"
    if lie == "another CUDA":
        how["needs"] = ("libtorch.so", "libcudart.so.13")
    if lie == "no code for the card":
        how["code"] = fatbin((2, 90, 0)) * 3
    return library(folder, *names, **how)


@pytest.mark.parametrize("lie", LIES)
def test_a_name_that_lies_is_rejected_with_the_reason_before_the_download(
    index, tmp_path, lie
):
    requires = "torch==2.10.*" if lie == "METADATA of another torch" else None
    named = "2.8.3+other" if lie == "METADATA of another version" else None
    file = liar(tmp_path, lie)
    name = index.add(
        "cu126",
        "flash-attn",
        "cu.12.6.torch.2.12",
        file,
        requires=requires,
        named=named,
    )
    if lie == "pieces of a file":
        held = index.files["cu126", "flash-attn"]
        held[name] = held[name][:-300]

    found = choice(index, tmp_path)

    code, message = LIES[lie]
    assert found.fit is None
    assert message in reasons(found)[code]


def test_a_release_whose_metadata_names_another_version_gives_way_to_one_that_pip_takes_too(
    index, tmp_path
):
    good, local = library(tmp_path, FROM_2_10), "cu.12.6.torch.2.12"
    for version in ("0.18.1", "0.18.2", "0.18.3"):
        index.add(
            "cu126",
            "deepspeed",
            local,
            good,
            version=version,
            named=f"{version}+unknown",
        )
    whole = index.add("cu126", "deepspeed", local, good, version="0.17.6")

    found = choice(index, tmp_path, name="deepspeed")

    assert found.fit
    assert found.fit.file.wheel.filename == whole
    assert {rejection.reason.code for rejection in found.rejected} == {"not-read"}


def test_what_names_say_rejects_without_a_request(index, tmp_path):
    good = library(tmp_path, FROM_2_10)
    for name, local, tag in (
        ("another Python", "cu.12.6.torch.2.12", "cp39-cp39-manylinux_2_28_x86_64"),
        ("another glibc", "cu.12.6.torch.2.12", "cp312-cp312-manylinux_2_39_x86_64"),
        ("another CUDA", "cu.13.0.torch.2.12", "cp312-cp312-manylinux_2_28_x86_64"),
        ("CPU", "cpu.torch.2.12", "cp312-cp312-manylinux_2_28_x86_64"),
        ("another torch", "cu.12.6.torch.2.1", "cp312-cp312-manylinux_2_28_x86_64"),
    ):
        index.add(
            "cu126", "flash-attn", local, good, tag=tag, version=f"2.8.{len(name)}"
        )

    found = choice(index, tmp_path)

    assert found.fit is None
    assert set(reasons(found)) == {"other-platform", "other-cuda", "other-torch"}
    assert not any("artifacts" in address for address in index.addresses)


def test_the_newest_extension_comes_before_the_newest_torch(index, tmp_path):
    index.add(
        "cu126",
        "flash-attn",
        "cu.12.6.torch.2.12",
        library(tmp_path, FROM_2_10),
        version="2.8.3",
    )
    newer = index.add(
        "cu126",
        "flash-attn",
        "cu.12.6.torch.2.10",
        library(tmp_path, FROM_2_10),
        version="2.8.3.post1",
    )

    found = choice(index, tmp_path)

    assert found.fit
    assert (found.fit.file.wheel.filename, str(found.fit.build.torch)) == (
        newer,
        "2.10.0",
    )


def test_stable_code_is_taken_beside_the_newest_torch_that_its_metadata_allows(
    index, tmp_path
):
    index.add(
        "cu126",
        "flash-attn",
        "cu.12.6",
        library(tmp_path, STABLE_FROM_2_13),
        requires="torch>=2.13",
    )

    found = choice(index, tmp_path)

    assert found.fit
    assert found.fit.build == lock_problem(RTX_3090).builds[0]


def test_code_that_nothing_says_a_torch_of_is_not_taken(index, tmp_path):
    index.add("cu126", "flash-attn", "cu.12.6", library(tmp_path, needs=OF_TORCH))

    assert set(reasons(choice(index, tmp_path))) == {"misfit"}


def test_a_card_below_the_lowest_capability_is_refused_without_reading(index, tmp_path):
    index.add("cu126", "flash-attn", "cu.12.6.torch.2.12", library(tmp_path, FROM_2_10))

    found = choice(index, tmp_path, ("V100", "535"))

    assert found.refusal
    assert found.refusal.message == (
        "flash-attn requires compute capability 8.0 or newer, and V100 has 7.0"
    )


def test_nothing_else_is_asked_for_a_bound_name(index, tmp_path):
    choice(index, tmp_path)

    assert index.addresses
    assert all(
        address.startswith("/simple/cu") and address.endswith("/flash-attn/")
        for address in index.addresses
    )
    for name in ("flash-attn", "flash-attn-3", "pyg-lib", "detectron2"):
        assert "default" not in {
            source.id for source in load_extensions().rows[name].sources
        }


@pytest.mark.parametrize(
    ("local", "cuda", "torch"),
    [
        ("cu.12.8.torch.2.11", "12.8", "2.11"),
        ("cu.12.8", "12.8", None),
        ("cu12.8torch2.10.0cxx11abitrue", "12.8", "2.10"),
        ("cu128torch2.7", "12.8", "2.7"),
        ("cu12torch2.10cxx11abiTRUE", "12", "2.10"),
        ("cu128", "12.8", None),
        ("pt212cu130", "13.0", "2.12"),
        ("pt28cpu", None, "2.8"),
        ("cpu.torch.2.13", None, "2.13"),
        ("git1234", None, None),
    ],
)
def test_both_forms_of_local_versions_are_understood(local, cuda, torch):
    file = named(local)

    assert (file.cuda, file.torch, file.cpu) == (cuda, torch, "cpu" in local)


def named(local):
    from packaging.version import Version

    from gpuinstall.catalog import Wheel

    wheel = Wheel(
        "some",
        Version(f"1.0+{local}"),
        "some.whl",
        "https://index.example/some.whl",
        frozenset(),
    )
    return load_extensions().file(wheel, load_extensions().sources["astral"])
