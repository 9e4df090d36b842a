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
    "NVML 3": (replace(HEALTHY, nvml_init=3), "nvml-error", None),
    "NVML 4": (replace(HEALTHY, nvml_init=4), "device-nodes-unusable", "F13"),
    "NVML 9": (replace(HEALTHY, nvml_init=9), "module-not-loaded", "F04"),
    "NVML 12": (replace(HEALTHY, nvml_init=12), "driver-libraries-missing", "F01"),
    "NVML 18": (replace(HEALTHY, nvml_init=18), "driver-library-mismatch", "F03"),
    "NVML 999": (replace(HEALTHY, nvml_init=999), "nvml-unknown-error", "F12"),
    "NVML crashes": (replace(HEALTHY, nvml_crash=True), "driver-crashes", None),
    "NVML crashes at a card": (replace(HEALTHY, more=(("nvml_crash_at", 0),)), "driver-crashes", None),
    "no libcuda": (replace(HEALTHY, cu_missing=True), "libcuda-missing", "F01"),
    "cuInit 3": (replace(HEALTHY, cu_init=3), "cuda-not-initialized", "F14"),
    "cuInit 34": (replace(HEALTHY, cu_init=34), "cuda-stub-library", "F01"),
    "cuInit 100": (replace(HEALTHY, cu_init=100), "cuda-no-device", "F15"),
    "cuInit 802": (replace(HEALTHY, cu_init=802), "fabric-manager-not-running", "F10"),
    "cuInit 803": (replace(HEALTHY, cu_init=803), "driver-library-mismatch", "F03"),
    "cuInit 804": (replace(HEALTHY, cu_init=804), "forward-compatibility-unsupported", "F11"),
    "cuInit 999": (replace(HEALTHY, cu_init=999), "cuda-unknown-error", "F12"),
    "libcuda crashes": (replace(HEALTHY, cu_crash=True), "driver-crashes", None),
    "the only card is lost": (FakeDriver((LOST,)), "gpu-lost", "F08"),
    "all cards are lost": (FakeDriver((LOST, LOST)), "gpu-lost", "F08"),
    "the only card is hidden": (FakeDriver((replace(RTX_4090, hidden_from_cuda=True),)), "cuda-no-device", "F15"),
    "the only card is prohibited": (
        FakeDriver((replace(RTX_4090, more=(("compute_mode", 2),)),)), "compute-mode-prohibited", "F16",
    ),
    "MIG without instances": (FakeDriver((replace(H200, mig=True),)), "mig-without-instances", "F17"),
    "a card that crashes": (FakeDriver((replace(RTX_4090, cuda_crash=True),)), "driver-crashes", None),
    "faulty memory": (FakeDriver((replace(RTX_4090, cuda_error=214),)), "gpu-memory-faulty", "F09"),
    "cards that do not open": (FakeDriver((replace(H200, cuda_error=101),) * 2), "gpu-hidden-from-cuda", "F15"),
    "a kernel that dies": (FakeDriver((replace(RTX_4090, launch_error=719),)), "gpu-kernel-failed", "F08"),
    "wrong numbers": (FakeDriver((replace(RTX_4090, wrong_result=True),)), "gpu-computes-wrong", "F08"),
}  # fmt: skip

SLICE = FakeSlice("MIG-11111111-0000-0000-0000-000000000001")

WORKING = {
    "two generations": (FakeDriver((RTX_4090, H200)), None),
    "a MIG slice": (FakeDriver((replace(H200, mig=True, slices=(SLICE,)),)), None),
    "a compute-only container": (replace(HEALTHY, nvml_missing=True), None),
    "no PTX compiler": (
        FakeDriver((replace(RTX_4090, ptx_error=221),)),
        "not proven: GPU 0",
    ),
    "one card full": (FakeDriver((RTX_4090, replace(RTX_4090, free_mib=0))), "not proven: GPU 1"),
    "one card held": (
        FakeDriver((RTX_4090, replace(RTX_4090, cuda_error=46))),
        "not proven: GPU 1",
    ),
    "no persistence": (replace(HEALTHY, nvml_hang_s=4), "waiting for NVML, up to 60 s"),
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


@pytest.mark.heavy
def test_a_container_that_was_given_only_utilities_is_told_which_setting_is_missing(
    workshop, index, play, monkeypatch
):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("NVIDIA_DRIVER_CAPABILITIES", "utility")
    play(replace(HEALTHY, cu_missing=True))
    said = refused(workshop, index).err
    assert "NVIDIA_DRIVER_CAPABILITIES is 'utility'" in said
    assert "[F25]" in said


@pytest.mark.heavy
def test_a_job_with_one_of_eight_is_installed_on_and_no_other_card_is_touched(
    workshop, play, monkeypatch
):
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    others = dict.fromkeys((0, 1, 2, 4, 5, 6, 7), replace(H200, cuda_crash=True))
    play(FakeDriver(eight(wrong=others)))
    devices = workshop.document("install")["data"]["verdict"]["devices"]
    assert [device["index"] for device in devices if device["status"] == "passed"] == [3]
    assert {device["status"] for device in devices} == {"passed", "unproven"}


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
