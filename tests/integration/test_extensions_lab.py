"""Extensions that are named: one file of a bound source and torch, chosen together while locking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuinstall.lock.lock import read_lock
from tests.lab.extension_index import ExtensionIndex
from tests.lab.index import StandInIndex
from tests.lab.releases import catalog_index
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop
from tests.unit.extensions.test_choice import library
from tests.unit.wheels.test_needs import FROM_2_10

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RTX_3090 = ("--gpu", "RTX 3090", "--driver", "550.54.14", "--python", "3.12")
ENTRY = "flash-attn"


@pytest.fixture
def extensions(tmp_path: Path) -> Iterator[ExtensionIndex]:
    """flash-attn 2.8.3 for torch 2.10, and 2.8.2 for torch 2.13."""
    index = ExtensionIndex()
    for version, torch in (("2.8.3", "2.10"), ("2.8.2", "2.13")):
        built = library(tmp_path / torch, FROM_2_10, needs=("libtorch.so", "libc10.so", "libcudart.so.12"))
        index.add("cu126", ENTRY, f"cu.12.6.torch.{torch}", built, version=version)
    host = index.host()
    index.url = host.url
    yield index
    host.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases of torch, a program that wants the newer one and another that has flash-attn as an extra."""
    folder = catalog_index(tmp_path_factory.mktemp("ext"), ["2.10.0", "2.13.0"], platforms=["linux-x86_64"])
    make_wheel(folder / "simple", "einops", "0.8")
    make_wheel(folder / "simple", "modern", "1.0", requires=["torch==2.13.0"])
    make_wheel(folder / "simple", "transformers", "5.0", requires=["torch", f"{ENTRY}; extra == 'flash'"])
    return folder


@pytest.fixture
def workshop(served: Path, extensions: ExtensionIndex, tmp_path: Path) -> Iterator[Workshop]:
    (tmp_path / "project").mkdir()
    with StandInIndex(served) as index:
        mirror = {"GPUINSTALL_EXTENSION_INDEX": f"{extensions.url}/simple"}
        yield Workshop(tmp_path / "project", tmp_path / "caches", index.environment() | mirror)


def test_the_newest_extension_comes_first_then_torch_and_its_file_is_locked_with_its_hash(
    workshop: Workshop, extensions: ExtensionIndex
) -> None:
    done = workshop.run("lock", ENTRY, *RTX_3090)
    assert done.ok, done.err
    assert "flash-attn 2.8.3 has prebuilt files up to torch 2.10.0; without it torch 2.13.0+cu126 would run" in done.err
    lock = read_lock(workshop.folder / "pylock.cu126.toml")
    assert (lock.versions[ENTRY], lock.versions["torch"]) == ("2.8.3+cu.12.6.torch.2.10", "2.10.0+cu126")
    (file,) = (file for file in lock.files if file.package == ENTRY)
    assert file.url.startswith(f"{extensions.url}/artifacts/{file.sha256}/")
    assert workshop.run("lock", "--check").ok


def test_a_program_that_was_named_too_moves_both(workshop: Workshop) -> None:
    assert workshop.run("lock", "modern", ENTRY, *RTX_3090).ok
    versions = read_lock(workshop.folder / "pylock.cu126.toml").versions
    assert (versions[ENTRY], versions["torch"]) == ("2.8.2+cu.12.6.torch.2.13", "2.13.0+cu126")


def test_a_gpu_that_no_build_of_it_serves_is_refused_before_anything_is_asked(
    workshop: Workshop, extensions: ExtensionIndex
) -> None:
    v100 = ("--gpu", "V100", "--driver", "550.54.14")
    error = workshop.document("plan", "--live", ENTRY, *v100, exit_code=3)["errors"][0]
    assert error["code"] == "no-code"
    assert "flash-attn is written for compute capability 8.0 and newer, and V100 has 7.0" in error["message"]
    assert extensions.addresses == []


def test_one_that_was_not_named_never_moves_torch_and_nobody_is_asked(
    workshop: Workshop, extensions: ExtensionIndex
) -> None:
    extensions.addresses.clear()
    assert workshop.run("lock", "transformers", *RTX_3090).ok
    assert read_lock(workshop.folder / "pylock.cu126.toml").versions["torch"] == "2.13.0+cu126"
    assert extensions.addresses == []
