"""Requests that cannot be met as they are written: the first command that each refusal names does what it says."""

from contextlib import closing
from typing import NamedTuple

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.cuda_compat import Redistributables, make_libraries, make_tar
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.index import StandInIndex
from tests.lab.releases import EARLIER, LINUX, RELEASES, catalog_index
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

RTX_5090 = FakeDriver(
    (FakeGpu("NVIDIA GeForce RTX 5090", cc="12.0", memory_mib=32607, pci="10de:2b85"),),
    driver="580.95.05",
    cuda=13000,
)
H100 = FakeDriver(
    (FakeGpu("NVIDIA H100 80GB HBM3", cc="9.0", memory_mib=81559, pci="10de:2330"),),
    driver="580.95.05",
    cuda=13000,
)
RTX_4090 = FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020)
T4 = FakeDriver(
    (FakeGpu("Tesla T4", cc="7.5", memory_mib=15360, pci="10de:1eb8"),),
    driver="550.163.01",
    cuda=12040,
)
A100 = FakeDriver(
    (FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0", memory_mib=81920, pci="10de:20b2"),),
    driver="550.163.01",
    cuda=12040,
)


class Refusal(NamedTuple):
    """A request that a machine cannot have, and what the first command of the refusal gives."""

    machine: FakeDriver
    request: str
    option: str
    torch: str


REFUSALS = {
    "RTX 5090: 2.0.1 and torchvision": Refusal(
        RTX_5090, "torch==2.0.1 torchvision==0.15.2", "--relax", "2.7.1+cu128"
    ),
    "RTX 5090: 2.3.1 and two": Refusal(
        RTX_5090,
        "torch==2.3.1 torchvision==0.18.1 torchaudio==2.3.1",
        "--relax",
        "2.7.1+cu128",
    ),
    "H100: 1.13.1": Refusal(H100, "torch==1.13.1", "--relax", "2.0.1+cu118"),
    "RTX 4090: 1.10.2": Refusal(RTX_4090, "torch==1.10.2", "--relax", "1.13.1+cu117"),
    "T4: 2.15": Refusal(T4, "torch>=2.15", "--cuda-compat", "2.15.0+cu130"),
    "A100: 2.15 and an old torchvision": Refusal(
        A100, "torch>=2.15 torchvision==0.18.1", "--relax", "2.14.1+cu126"
    ),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    versions = [release.torch for release in (*EARLIER, *RELEASES)]
    folder = catalog_index(
        tmp_path_factory.mktemp("served"), versions, platforms=[LINUX], pythons=["3.10", "3.11"]
    )
    # torch before 2.3 does not go with NumPy 2.
    make_wheel(folder / "simple", "numpy", "1.26.4")
    with StandInIndex(folder) as served:
        yield served


@pytest.fixture(scope="module")
def nvidia(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvidia")
    archive = make_tar(make_libraries(folder / "580"), folder / "cuda-compat.tar.xz")
    with closing(Redistributables(archive.read_bytes())) as host:
        yield host


@pytest.mark.parametrize(
    "name", mostly_heavy(REFUSALS, {"RTX 5090: 2.0.1 and torchvision", "T4: 2.15"})
)
def test_the_first_command_of_a_refusal_gives_what_it_says(index, nvidia, tmp_path, play, name):
    machine, request, option, torch = REFUSALS[name]
    play(machine)
    folder = tmp_path / "project"
    folder.mkdir()
    variables = {**index.environment(), "GPUINSTALL_CUDA_COMPAT_FROM": nvidia.manifest}
    workshop = Workshop(folder, tmp_path / "caches", variables)

    refused = workshop.document("install", *request.split(), exit_code=3)
    hint = refused["errors"][0]["hint"]
    # Others' lines are for an administrator: sudo apt-get.
    advice = next(line for line in hint.splitlines() if line.startswith("Run it again with "))
    assert advice.startswith(f"Run it again with {option}: ")
    done = workshop.run("install", *request.split(), option)

    assert done.status == 0, done.out + done.err
    assert workshop.python("import torch; print(torch.__version__)") == torch
    assert f": torch {torch.partition('+')[0]}" in advice
