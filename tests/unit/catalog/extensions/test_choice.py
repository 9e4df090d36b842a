"""Selection of an extension's file from a fake index."""

from functools import partial
from pathlib import Path

import pytest

from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.values import replace
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.extensions import (
    TorchKey,
    list_files,
    load_extensions,
)
from gpuinstall.catalog.pages import parse_folder
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.extensions import ExtensionChooser, choose_prebuilt
from gpuinstall.lock.resolve.question import create_question
from gpuinstall.machine.options import machine_from_options
from gpuinstall.sources.session import open_session
from gpuinstall.sources.web import Client
from gpuinstall.wheels.learned.reader import Reader, make_reader
from gpuinstall.wheels.learned.store import RowCache
from tests.lab.extension_index import ExtensionIndex
from tests.lab.native import GONE, native_library
from tests.lab.own_sources import read_sources
from tests.unit.wheels.made import fatbin
from tests.unit.wheels.test_needs import (
    FROM_2_9,
    FROM_2_10,
    OF_TORCH,
    STABLE_FROM_2_13,
    UNTIL_2_8,
    UNTIL_2_11,
)

CODE = fatbin("sm_80 sm_90") * 3
CU12 = ("libtorch.so", "libc10.so", "libcudart.so.12")


class Shop:
    """A fake extension index for CUDA 12.6, and the selection from it."""

    def __init__(self, index, folder):
        self.index = index
        self.folder = folder

    def add(self, local, *undefined, package="flash-attn", cut=None, **facts):
        """List a wheel that requires symbols of torch, and return its name.

        By default, the library is for CUDA 12, sm_80, and sm_90; ``facts`` override this.
        """
        how = {"needs": CU12, "code": CODE} | {
            name: facts.pop(name)
            for name in ("needs", "code", "glibc")
            if name in facts
        }
        file = self.folder / f"{len(list(self.folder.glob('*.so')))}.so"
        library = native_library(file, undefined=undefined, **how)
        name = self.index.add("cu126", package, local, library, **facts)
        listed = self.index.files["cu126", package]
        listed[name] = listed[name][:cut]
        return name

    def extension(self, name):
        """Return an extension with this index as its only source."""
        url = f"{self.index.url}/simple/{{backend}}/{{name}}/"
        astral = replace(load_extensions().sources["astral"], url=url)
        return replace(load_extensions().rows[name], sources=(astral,))

    def choose(self, name="flash-attn"):
        """Select the extension file that ``install`` would select."""
        sources = read_sources(None, {}, self.folder)
        with Client(sources.credentials.certificates, logins={}) as client:
            store = RowCache(self.folder / "learned")
            reader = Reader(sources, client, store, Reporter())
            problem = lock_problem()
            chooser = ExtensionChooser(problem, reader.readings)
            places = [
                TorchKey(build.minor, build.backend.tag, build.os)
                for build in problem.builds
            ]
            row = self.extension(name)
            return chooser.choose(list_files(row, places, sources, client).files)


@pytest.fixture
def shop(tmp_path):
    index = ExtensionIndex()
    host = index.host()
    index.url = host.url
    yield Shop(index, tmp_path)
    host.close()


def lock_problem():
    there = replace(machine_from_options(("RTX 3090",), "550"), glibc="2.35")
    request = Request(("torch", "flash-attn"), python="3.12")
    lock_request = LockRequest(there, request, load_catalog())
    return create_question(lock_request, lock_request.plan)


def reasons(found):
    return {
        rejection.reason.code: rejection.reason.message for rejection in found.rejected
    }


def test_extension_inspection_counts_bytes_read(shop, tmp_path):
    shop.add("cu.12.6.torch.2.11", FROM_2_10, UNTIL_2_11, requires="torch==2.11.*")
    with open_session(read_sources(None, {}, tmp_path), Reporter()) as session:
        found = choose_prebuilt(
            shop.extension("flash-attn"),
            lock_problem(),
            parse_requirement("flash-attn"),
            session,
        )
        assert found.fit
        assert make_reader(session).bytes_read == found.fit.row.bytes > 0


ON_WINDOWS = "torch==2.9.* ; sys_platform == 'win32'"


@pytest.mark.parametrize("requires", ["torch==2.11.*", ON_WINDOWS])
def test_older_torch_is_selected_if_extension_requires_it(shop, requires):
    name = shop.add("cu.12.6.torch.2.11", FROM_2_10, UNTIL_2_11, requires=requires)

    fit = shop.choose().fit

    assert (fit.file.wheel.filename, fit.build.name) == (name, "2.11.0+cu126")
    assert fit.file.wheel.sha256
    assert fit.row.architectures == ("sm_80", "sm_90")
    assert lock_problem().builds[0].torch > fit.build.torch


WORKS_WITH = "is incompatible with torch 2.12.1+cu126: its code is compatible with"


@pytest.mark.parametrize(
    ("names", "facts", "code", "message"),
    [
        ((FROM_2_10, UNTIL_2_11), {}, "misfit", f"{WORKS_WITH} torch 2.10 to 2.11"),
        (
            (UNTIL_2_8, FROM_2_9, GONE),
            {},
            "misfit",
            f"{WORKS_WITH} no known torch version",
        ),
        ((STABLE_FROM_2_13,), {}, "misfit", f"{WORKS_WITH} torch 2.13 and newer"),
        (
            (FROM_2_10,),
            {"glibc": "2.38"},
            "misfit",
            "its code requires glibc 2.38, but this system has 2.35",
        ),
        (
            (FROM_2_10,),
            {"needs": ("libtorch.so", "libcudart.so.13")},
            "misfit",
            "does not run on driver 550: flash_attn/_C.so is built with CUDA 13",
        ),
        (
            (FROM_2_10,),
            {"code": fatbin("sm_90") * 3},
            "misfit",
            "has no code for GeForce RTX 3090",
        ),
        (
            (FROM_2_10,),
            {"requires": "torch==2.10.*"},
            "misfit",
            "its METADATA requires torch==2.10.*, not torch 2.12",
        ),
        (
            (FROM_2_10,),
            {"named": "2.8.3+other"},
            "not-read",
            "METADATA has version 2.8.3+other",
        ),
        ((FROM_2_10,), {"cut": -300}, "not-read", "cannot be read"),
    ],
)
def test_mislabeled_file_is_rejected_before_download(shop, names, facts, code, message):
    shop.add("cu.12.6.torch.2.12", *names, **facts)

    found = shop.choose()

    assert found.fit is None
    assert message in reasons(found)[code]


def test_release_with_wrong_metadata_is_rejected(
    shop,
):
    add = partial(shop.add, "cu.12.6.torch.2.12", FROM_2_10, package="deepspeed")
    for version in ("0.18.1", "0.18.2", "0.18.3"):
        add(version=version, named=f"{version}+unknown")
    whole = add(version="0.17.6")

    found = shop.choose(name="deepspeed")

    assert found.fit.file.wheel.filename == whole
    assert {rejection.reason.code for rejection in found.rejected} == {"not-read"}


def test_incompatible_file_names_are_rejected_without_download(shop):
    tag = "cp312-cp312-manylinux_2_28_x86_64"
    shop.add("cu.12.6.torch.2.12", tag=tag.replace("312", "39"), version="2.8.1")
    shop.add("cu.12.6.torch.2.12", tag=tag.replace("28", "39"), version="2.8.2")
    for local in ("cu.13.0.torch.2.12", "cpu.torch.2.12", "cu.12.6.torch.2.1"):
        shop.add(local, tag=tag)

    found = shop.choose()

    assert found.fit is None
    assert set(reasons(found)) == {"other-platform", "other-cuda", "other-torch"}
    assert not any("artifacts" in address for address in shop.index.addresses)


def test_stable_abi_extension_is_selected_with_latest_torch(shop):
    shop.add("cu.12.6", STABLE_FROM_2_13, requires="torch>=2.13")

    assert shop.choose().fit.build == lock_problem().builds[0]


def test_extension_without_torch_version_is_rejected(shop):
    shop.add("cu.12.6", needs=OF_TORCH)

    assert set(reasons(shop.choose())) == {"misfit"}


def test_extension_pages_are_requested_only_from_their_source(shop):
    shop.choose()

    assert shop.index.addresses
    assert all(
        address.startswith("/simple/cu") and address.endswith("/flash-attn/")
        for address in shop.index.addresses
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
        ("cu130torch2.13", "13.0", "2.13"),
        ("cu13.0torch2.11", "13.0", "2.11"),
        ("cu132torch2.13", "13.2", "2.13"),
        ("cu128torch2.9.0cxx11abiFALSE", "12.8", "2.9"),
        ("cu130torch2.10.0andhigher.post6", "13.0", "2.10"),
    ],
)
def test_extension_local_version_determines_cuda_and_torch(local, cuda, torch):
    name = f"some-1.0+{local}-py3-none-any.whl"
    (wheel,) = parse_folder([name], Path("/wheels"), "")

    file = load_extensions().parse_file(wheel, load_extensions().sources["astral"])

    assert (file.cuda, file.torch, file.cpu, file.and_newer) == (
        cuda,
        torch,
        "cpu" in local,
        "andhigher" in local,
    )
