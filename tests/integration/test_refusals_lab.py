"""What ``install`` makes of each faulty machine, before the first byte; and that it refuses no machine that works."""

import json
from dataclasses import replace

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.driver import FakeDriver, FakeGpu, FakeSlice, eight
from tests.lab.index import StandInIndex
from tests.lab.workshop import Workshop

RTX_4090 = FakeGpu()
H200 = FakeGpu("NVIDIA H200", cc="9.0", memory_mib=143771, pci="10de:2335")
HEALTHY = FakeDriver((RTX_4090,), driver="580.95.05", cuda=13000)
LOST = FakeGpu(nvml_error=15, hidden_from_cuda=True)

FAULTY = {
"NVML 18": (replace(HEALTHY, nvml_init=18), "driver-library-mismatch", "F03"),
"NVML crashes": (replace(HEALTHY, nvml_crash=True), "driver-crashes", None),
"no libcuda": (replace(HEALTHY, cu_missing=True), "libcuda-missing", "F01"),
"cuInit 803": (replace(HEALTHY, cu_init=803), "driver-library-mismatch", "F03"),
"all cards are lost": (FakeDriver((LOST, LOST)), "gpu-lost", "F08"),
"MIG without instances": (FakeDriver((replace(H200, mig=True),)), "mig-without-instances", "F17"),
"a card that crashes": (FakeDriver((replace(RTX_4090, cuda_crash=True),)), "driver-crashes", None),
"wrong numbers": (FakeDriver((replace(RTX_4090, wrong_result=True),)), "gpu-computes-wrong", "F08"),
}  # fmt: skip

SLICE = FakeSlice("MIG-11111111-0000-0000-0000-000000000001")

WORKING = {
    "a MIG slice": (FakeDriver((replace(H200, mig=True, slices=(SLICE,)),)), None),
    "no PTX compiler": (
        FakeDriver((replace(RTX_4090, ptx_error=221),)),
        "not proven: GPU 0",
    ),
    "one card held": (
        FakeDriver((RTX_4090, replace(RTX_4090, cuda_error=46))),
        "not proven: GPU 1",
    ),
}


@pytest.fixture(scope="module")
def index(catalog_wheels):
    with StandInIndex(catalog_wheels) as served:
        yield served


@pytest.fixture
def workshop(index, tmp_path):
    (tmp_path / "project").mkdir()
    index.forget()
    return Workshop(tmp_path / "project", tmp_path / "caches", index.environment())


def refused(workshop, index):
    """Ask for an installation in words: it ends with 8, and nobody was asked for anything."""
    done = workshop.run("install")
    assert done.status == 8, done.out + done.err
    assert done.out == ""
    assert "--backend cpu: the CPU build instead" in done.err
    assert "Traceback" not in done.err
    assert index.log == []
    assert workshop.entries() == set()
    return done


@pytest.mark.parametrize(
    "name", mostly_heavy(FAULTY, {"NVML 18", "cuInit 803", "all cards are lost", "wrong numbers"})
)
def test_a_faulty_machine_is_refused_by_its_cause_before_the_first_byte(
    workshop, index, play, name
):
    driver, code, entry = FAULTY[name]
    play(driver)
    done = workshop.run("install", "--json")
    envelope = json.loads(done.out)
    (error, *_) = envelope["errors"]
    assert (done.status, envelope["exit_code"], envelope["status"], error["code"]) == (
        8,
        8,
        "error",
        code,
    )
    assert error["hint"]
    assert index.log == []
    assert workshop.entries() == set()
    assert error.get("id") == entry
    said = refused(workshop, index).err
    assert entry is None or f"[{entry}]" in said


@pytest.mark.heavy
def test_a_driver_that_hangs_is_refused_when_its_time_is_over(workshop, index, play):
    play(replace(HEALTHY, nvml_hang_s=600))
    said = refused(workshop, index).err
    assert said.startswith("            waiting for NVML, up to 60 s\n")
    assert "[F08]" in said


@pytest.mark.parametrize("name", mostly_heavy(WORKING, {"one card held"}))
def test_a_machine_that_works_is_installed_on(workshop, play, name):
    driver, said = WORKING[name]
    play(driver)
    done = workshop.run("install")
    assert done.status == 0, done.out + done.err
    assert said is None or said in done.err


@pytest.mark.heavy
def test_one_lost_gpu_of_eight_is_named_and_the_others_are_installed_on(workshop, play):
    play(FakeDriver(eight(wrong={3: replace(H200, nvml_error=15, hidden_from_cuda=True)})))
    envelope = workshop.document("install")
    assert envelope["status"] == "partial"
    hows = {gpu["index"]: gpu["how"] for gpu in envelope["data"]["plan"]["gpus"]}
    assert [index for index, how in hows.items() if how == "none"] == [3]
    assert "GPU 3 is lost" in json.dumps(envelope["data"]["plan"]["warnings"])
    assert len(envelope["data"]["verdict"]["devices"]) == 7
