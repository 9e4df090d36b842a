"""The probe against the compiled fakes, loaded by the real bindings through the real loader."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from time import monotonic, sleep
from typing import Any

import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Machine
from gpuinstall.base.node_records import NodeFailure, read_report
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.machine import probe as steps
from gpuinstall.machine.probe import read_machine
from tests.lab.cases import mostly_heavy
from tests.lab.driver import FakeDriver, FakeGpu, FakeSlice, eight
from tests.lab.pace import slowness

RTX_4090 = FakeGpu()
A100 = FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0", memory_mib=81920, pci="10de:20b2")
GTX_1080 = FakeGpu("NVIDIA GeForce GTX 1080", cc="6.1", memory_mib=8192, pci="10de:1b80")


@pytest.fixture(autouse=True)
def _no_notes_about_this_machine(monkeypatch: pytest.MonkeyPatch):
    """The fake driver is under test, not the disk or the variables of the machine that runs the tests."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(steps, "read_folders", lambda _source: {})


def only_problem(machine: Machine) -> Finding:
    assert len(machine.problems) == 1, machine.problems
    return machine.problems[0]


def probe_command(environment: dict[str, str], *words: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "gpuinstall", "probe", "--json", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def test_a_healthy_gpu_is_described_by_nvml(play):
    play(FakeDriver((RTX_4090,), driver="535.183.01", cuda=12020))
    machine = read_machine()
    assert machine.problems == ()
    assert machine.driver is not None
    assert (str(machine.driver.version), str(machine.driver.cuda), machine.driver.found_via) == (
        "535.183.01",
        "12.2",
        "nvml",
    )
    gpu = machine.gpus[0]
    assert (gpu.index, gpu.name, gpu.pci_id, gpu.memory_mib) == (
        0,
        "NVIDIA GeForce RTX 4090",
        "10de:2684",
        24564,
    )
    assert (str(gpu.compute_capability), gpu.uuid, gpu.found_via) == (
        "8.9",
        "GPU-00000000-1ab0-c0de-face-000000000000",
        "nvml",
    )


def test_eight_gpus_are_listed_in_pci_order_within_half_a_second(play):
    play(FakeDriver(eight()))
    times = []
    for _ in range(3):
        start = monotonic()
        machine = read_machine()
        times.append(monotonic() - start)
    assert min(times) <= 0.5 * slowness()
    assert [gpu.index for gpu in machine.gpus] == list(range(8))
    assert machine.problems == ()


def test_generations_may_be_mixed(play):
    play(FakeDriver((RTX_4090, GTX_1080)))
    assert [str(gpu.compute_capability) for gpu in read_machine().gpus] == ["8.9", "6.1"]


def test_mig_slices_are_listed_below_their_card(play):
    part = FakeSlice("MIG-11111111-2222-3333-4444-555555555555", "1g.10gb", 9856)
    play(
        FakeDriver(
            (
                FakeGpu(
                    A100.name, cc="8.0", memory_mib=81920, pci=A100.pci, mig=True, slices=(part,)
                ),
            )
        )
    )
    machine = read_machine()
    assert machine.problems == ()
    assert machine.gpus[0].mig
    assert [(each.uuid, each.profile, each.memory_mib) for each in machine.gpus[0].mig_devices] == [
        ("MIG-11111111-2222-3333-4444-555555555555", "1g.10gb", 9856)
    ]


def test_a_mig_card_without_a_slice_is_left_out(play):
    play(FakeDriver((RTX_4090, FakeGpu(A100.name, cc="8.0", pci=A100.pci, mig=True))))
    problem = only_problem(read_machine())
    assert (problem.code, problem.id, problem.gpus) == ("mig-without-instances", "F17", (1,))
    assert problem.fix is not None
    assert "mig -i 1 -cgi" in problem.fix


def test_unified_memory_is_unknown_not_zero(play):
    play(FakeDriver((FakeGpu("NVIDIA GB10", cc="12.1", memory_mib=0, pci="10de:2e12"),)))
    assert read_machine().gpus[0].memory_mib is None


NVML = {
    4: ("device-nodes-unusable", "F13"),
    9: ("module-not-loaded", "F04"),
    12: ("driver-libraries-missing", "F01"),
    18: ("driver-library-mismatch", "F03"),
    999: ("nvml-unknown-error", "F12"),
    3: ("nvml-error", None),
}
CUDA = {3: "F14", 100: "F15", 802: "F10", 803: "F03", 804: "F11", 999: "F12"}


@pytest.mark.parametrize("init", mostly_heavy(NVML, {18, 3}))
def test_an_nvml_that_refuses_names_its_cause(play, init):
    play(FakeDriver((RTX_4090,), nvml_init=init))
    problem = only_problem(read_machine())
    assert (problem.code, problem.id, problem.blocking, problem.gpus) == (*NVML[init], True, ())
    assert problem.fix


@pytest.mark.parametrize("init", [9, 12])
def test_an_nvml_without_a_driver_and_no_gpu_anywhere_is_a_machine_without_a_gpu(play, init):
    play(FakeDriver((), nvml_init=init, cu_init=100))
    machine = read_machine()
    assert (machine.gpus, machine.problems, machine.driver) == ((), (), None)


def test_no_libraries_at_all_is_a_machine_without_a_gpu(play):
    play(FakeDriver((), nvml_missing=True, cu_missing=True))
    machine = read_machine()
    assert (machine.gpus, machine.problems, machine.driver) == ((), (), None)


def test_a_driver_that_lists_no_gpu_is_a_machine_without_a_gpu(play):
    play(FakeDriver((), cu_init=100))
    assert read_machine().problems == ()


@pytest.mark.parametrize("init", mostly_heavy(CUDA, {802}))
def test_a_cuda_that_refuses_while_nvml_sees_a_gpu_names_its_cause(play, init):
    play(FakeDriver((RTX_4090,), cu_init=init))
    problem = only_problem(read_machine())
    assert (problem.id, problem.blocking, problem.gpus) == (CUDA[init], True, ())
    assert problem.fix
    assert problem.evidence is not None
    assert f"CUDA error {init}" in problem.evidence


def test_a_libcuda_without_nvml_is_a_healthy_compute_only_container(play):
    play(FakeDriver((RTX_4090, A100), nvml_missing=True))
    machine = read_machine()
    assert machine.problems == ()
    assert [(gpu.index, str(gpu.compute_capability), gpu.found_via) for gpu in machine.gpus] == [
        (0, "8.9", "libcuda"),
        (1, "8.0", "libcuda"),
    ]
    assert machine.driver is not None
    assert (machine.driver.version, str(machine.driver.cuda), machine.driver.found_via) == (
        None,
        "13.0",
        "libcuda",
    )


def test_an_nvml_without_libcuda_is_a_fault_of_the_machine(play):
    play(FakeDriver((RTX_4090,), cu_missing=True))
    problem = only_problem(read_machine())
    assert (problem.code, problem.blocking, problem.gpus) == ("libcuda-missing", True, ())


def test_one_lost_gpu_of_eight_is_a_fault_of_that_gpu(play):
    play(FakeDriver(eight(wrong={3: FakeGpu(nvml_error=15, hidden_from_cuda=True)})))
    machine = read_machine()
    problem = only_problem(machine)
    assert (problem.code, problem.id, problem.gpus, problem.blocking) == (
        "gpu-lost",
        "F08",
        (3,),
        True,
    )
    assert len(machine.gpus) == 8
    assert machine.gpus[3].compute_capability is None


def test_a_gpu_that_may_not_be_opened_is_a_fault_of_that_gpu(play):
    play(FakeDriver((RTX_4090, FakeGpu(nvml_error=4, hidden_from_cuda=True))))
    problem = only_problem(read_machine())
    assert (problem.code, problem.id, problem.gpus) == ("gpu-not-permitted", "F13", (1,))


def test_a_gpu_that_nvml_lists_and_cuda_does_not_is_a_fault_of_that_gpu(play):
    play(FakeDriver((RTX_4090, FakeGpu(hidden_from_cuda=True))))
    problem = only_problem(read_machine())
    assert (problem.code, problem.id, problem.gpus) == ("gpu-hidden-from-cuda", "F15", (1,))


def test_a_prohibited_gpu_is_a_fault_of_that_gpu(play):
    play(FakeDriver((RTX_4090, FakeGpu(more=(("compute_mode", 2),)))))
    problem = only_problem(read_machine())
    assert (problem.code, problem.id, problem.gpus) == ("compute-mode-prohibited", "F16", (1,))


def test_an_exclusive_or_full_gpu_is_healthy(play):
    play(FakeDriver((FakeGpu(free_mib=12), FakeGpu(more=(("compute_mode", 3),)))))
    assert read_machine().problems == ()


def test_memory_that_cannot_be_remapped_is_a_fault_and_pending_remapping_a_note(play):
    failed, pending = (FakeGpu(more=((f"remap_{state}", 1),)) for state in ("failed", "pending"))
    play(FakeDriver((failed, pending)))
    found = [
        (problem.code, problem.id, problem.gpus, problem.blocking)
        for problem in read_machine().problems
    ]
    assert found == [
        ("row-remap-failed", "F09", (0,), True),
        ("row-remap-pending", "F09", (1,), False),
    ]


@pytest.mark.parametrize(
    ("init", "code"),
    [(0, "forward-compatibility-library"), (804, "forward-compatibility-unsupported")],
)
def test_a_compat_libcuda_before_the_drivers_own_is_named_with_its_folder(
    play,
    libraries,
    tmp_path,
    monkeypatch,
    *,
    init,
    code,
):
    environment = play(FakeDriver((RTX_4090,), cu_init=init))
    compat = tmp_path / "cuda-13.0" / "compat"
    compat.mkdir(parents=True)
    shutil.copy(libraries / "cuda" / "libcuda.so.1", compat)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{compat}:{environment['LD_LIBRARY_PATH']}")
    problem = only_problem(read_machine())
    assert (problem.code, problem.id, problem.blocking) == (code, "F11", init == 804)
    assert str(compat) in (problem.fix or "")


class Listener(SilentReporter):
    """Keeps what is said to be waited for."""

    def __init__(self):
        self.waits: list[str] = []

    def wait(self, text: str):
        self.waits.append(text)


def test_an_nvml_that_hangs_is_ended_and_reported(play, monkeypatch):
    monkeypatch.setattr("gpuinstall.machine.children.DRIVER_SECONDS", 1.0)
    monkeypatch.setattr("gpuinstall.machine.children.NOTICE_AFTER", 0.3)
    play(FakeDriver((RTX_4090, A100), more=(("nvml_hang_at", 1),)))
    listener = Listener()
    start = monotonic()
    machine = read_machine(listener)
    assert monotonic() - start < 60
    assert "waiting for NVML, up to 1 s" in listener.waits
    assert machine.problems[0].code == "driver-hangs"
    assert machine.problems[0].message == "NVML does not answer when asked about GPU 1"
    assert machine.gpus[0].name == RTX_4090.name


def test_a_slow_start_without_persistence_is_waited_for(play, monkeypatch):
    monkeypatch.setattr("gpuinstall.machine.children.NOTICE_AFTER", 0.3)
    play(FakeDriver((RTX_4090,), nvml_hang_s=1))
    listener = Listener()
    assert read_machine(listener).problems == ()
    assert "waiting for NVML, up to 60 s" in listener.waits


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        (FakeDriver((RTX_4090,), nvml_crash=True), "NVML crashes"),
        (
            FakeDriver((RTX_4090, A100), more=(("nvml_crash_at", 1),)),
            "NVML crashes when asked about GPU 1",
        ),
        (FakeDriver((RTX_4090,), cu_crash=True), "libcuda crashes"),
    ],
)
def test_a_library_that_crashes_does_not_take_us_along(play, driver, message):
    play(driver)
    problem = only_problem(read_machine())
    assert (problem.code, problem.message) == ("driver-crashes", message)
    assert problem.why is not None
    assert "SIGSEGV" in problem.why


def test_the_command_ends_with_8_on_a_blocking_problem_and_gives_its_data(play):
    status, document = probe_command(play(FakeDriver((RTX_4090,), nvml_init=18)))
    assert status == document["exit_code"] == 8
    assert document["status"] == "error"
    assert document["errors"][0]["code"] == "driver-library-mismatch"
    assert document["errors"][0]["hint"].startswith("sudo reboot")
    assert document["data"]["problems"][0]["id"] == "F03"


def test_a_machine_whose_driver_is_too_old_for_any_torch_is_refused(play):
    old = FakeGpu("NVIDIA GeForce RTX 3090", cc="8.6", pci="10de:2204")
    status, document = probe_command(play(FakeDriver((old,), driver="450.80.02", cuda=11000)))
    (error,) = document["errors"]
    assert (status, error["code"]) == (8, "driver-older-than-gpu")
    assert error["hint"].startswith("Update the NVIDIA driver to ")


def test_the_command_ends_with_0_on_a_healthy_machine_and_its_document_reads_back(
    play,
):
    status, document = probe_command(play(FakeDriver((RTX_4090,))))
    assert (status, document["status"], document["errors"]) == (0, "success", [])
    assert Machine.from_dict(document).to_dict() == document["data"]


def test_the_command_ends_with_8_when_every_gpu_is_at_fault(play):
    status, document = probe_command(play(FakeDriver((FakeGpu(nvml_error=15),), cu_init=100)))
    assert status == 8
    assert [(each["code"], each["gpus"]) for each in document["data"]["problems"]] == [
        ("gpu-lost", [0])
    ]


def test_the_document_does_not_name_the_host(play):
    environment = play(FakeDriver((RTX_4090,), cu_init=803))
    command = [sys.executable, "-m", "gpuinstall", "probe", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert not re.search(rf"(?<!\w){re.escape(platform.node())}(?!\w)", done.stdout)


@pytest.mark.parametrize("driver", [FakeDriver((RTX_4090,)), FakeDriver((RTX_4090,), cu_init=803)])
def test_a_record_is_written_whatever_the_outcome(play, tmp_path, driver):
    environment = play(driver) | {"GPUINSTALL_NODE": "n1"}
    status, document = probe_command(environment, "--record", str(tmp_path / "records"))

    record = json.loads((tmp_path / "records" / "n1.probe.json").read_text(encoding="utf-8"))
    assert record["document"] == document
    assert record["document"]["exit_code"] == status
    assert record["machine"] == document["data"]


def test_a_command_that_is_killed_has_left_a_record(play, tmp_path):
    environment = play(FakeDriver((RTX_4090,), nvml_hang_s=60)) | {"GPUINSTALL_NODE": "n1"}
    command = [sys.executable, "-m", "gpuinstall", "probe", "--record", str(tmp_path)]
    with subprocess.Popen(command, env=environment) as probing:
        while not (tmp_path / "n1.probe.json").exists() and probing.poll() is None:
            sleep(0.01)
        probing.kill()

    assert read_report(tmp_path).failed == (
        NodeFailure("n1", "probe", "it still runs, or was killed"),
    )


@pytest.mark.skipif(
    shutil.which("unshare") is None, reason="needs unshare to put every privilege down"
)
def test_nothing_needs_a_privilege_and_nothing_is_changed(play, tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    environment = {
        **play(FakeDriver((RTX_4090,))),
        "HOME": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for words in (("probe", "--json"), ("doctor", "--json")):
        command = ["unshare", "--user", sys.executable, "-m", "gpuinstall", *words]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.stderr.startswith("unshare: "):
            pytest.skip("this machine allows no user namespace to put every privilege down in")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["status"] == "success"
    assert list(folder.iterdir()) == []


def test_a_person_reads_what_the_machine_is_and_what_to_do(play):
    environment = play(
        FakeDriver((RTX_4090, RTX_4090), driver="535.183.01", cuda=12020, cu_init=802)
    )
    command = [sys.executable, "-m", "gpuinstall", "probe"]
    done = subprocess.run(
        command, env={**environment, "NO_COLOR": "1"}, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 8
    assert lines[0].startswith(
        "Machine     2 × NVIDIA GeForce RTX 4090 (sm_89, 24 GB) · driver 535.183.01 (CUDA 12.2) · "
    )
    assert "Driver      535.183.01 · CUDA 12.2 · by nvml" in lines
    assert any(line.startswith("error: ") and line.endswith("[F10]") for line in lines)
    assert any(line.startswith("  do    ") and "conf-compute" in line for line in lines)


def test_an_output_without_unicode_is_still_written(play):
    environment = {
        **play(FakeDriver((RTX_4090, RTX_4090), cu_init=802)),
        "PYTHONIOENCODING": "ascii",
    }
    command = [sys.executable, "-m", "gpuinstall", "probe"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (8, "")
    assert done.stdout.startswith("Machine     2 ? NVIDIA GeForce RTX 4090")


@pytest.mark.parametrize("words", [("--machine", "/no/such/file"), ("--record",)])
def test_wrong_usage_is_one_line_and_exit_2(words):
    command = [sys.executable, "-m", "gpuinstall", "probe", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
