"""Tests with old, minimal, and unusual drivers."""

import pytest

from gpuinstall.base.reporter import Reporter
from gpuinstall.machine.probe import preflight, read_machine
from tests.lab.cases import mostly_heavy
from tests.lab.driver import FakeDriver, FakeGpu, compiled, environment, uuid_of

TWO = FakeDriver(
    (
        FakeGpu(),
        FakeGpu("NVIDIA GeForce GTX 1080", cc="6.1", memory_mib=8192, pci="10de:1b80"),
    )
)


@pytest.fixture
def play(libraries, tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def start(*lacking, driver=TWO, nvml="", cuda=""):
        other = tmp_path / f"libraries-{len(list(tmp_path.glob('libraries-*')))}"
        other.mkdir()
        for room, begins, more in (("nvml", "nvml", nvml), ("cuda", "cu", cuda)):
            hidden = [name for name in lacking if name.startswith(begins)]
            if hidden or more:
                compiled(other, room, hidden, more)
            else:
                (other / room).symlink_to(libraries / room)
        played = environment(driver, other, tmp_path)
        for name in ("LAB_GPUS", "LD_LIBRARY_PATH"):
            monkeypatch.setenv(name, played[name])
        return read_machine()

    return start


def described(machine):
    return [
        (
            gpu.uuid,
            gpu.pci_id,
            gpu.compute_capability and gpu.compute_capability.sm,
            gpu.memory_mib,
        )
        for gpu in machine.gpus
    ]


WHOLE = [
    (uuid_of(0), "10de:2684", "sm_89", 24564),
    (uuid_of(1), "10de:1b80", "sm_61", 8192),
]


FUNCTIONS = (
    "cuDeviceGetUuid",
    "cuDeviceGetUuid_v2",
    "cuDeviceGetPCIBusId",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetName",
)


@pytest.mark.parametrize(
    "lacking",
    mostly_heavy(FUNCTIONS, {"cuDeviceGetUuid_v2", "cuDeviceTotalMem_v2"}),
)
def test_missing_driver_function_is_not_an_error(play, lacking):
    machine = play(lacking)
    assert machine.problems == ()
    assert described(machine) == WHOLE
    assert preflight(machine, Reporter()).with_outcome("proven") == (0, 1)


def test_gpus_match_if_nvml_order_differs_from_cuda(play):
    backwards = """
    nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
        return hidden_nvmlDeviceGetHandleByIndex_v2(lab_gpus() - 1 - index, device);
    }"""
    machine = play(
        "nvmlDeviceGetHandleByIndex_v2", "cuDeviceTotalMem_v2", nvml=backwards
    )
    assert machine.problems == ()
    assert described(machine) == WHOLE[::-1]
    assert [gpu.index for gpu in machine.gpus] == [0, 1]
    assert preflight(machine, Reporter()).with_outcome("proven") == (0, 1)


CHATTER = '#include <unistd.h>\n__attribute__((constructor)) static void talk(void) { write(1, "{} loaded", 9); }\n'
DIES = "#include <signal.h>\n__attribute__((constructor)) static void die(void) { raise(SIGSEGV); }\n"
LEAVES = "#include <stdlib.h>\n__attribute__((constructor)) static void leave(void) { _Exit(0); }\n"


@pytest.mark.heavy
def test_output_printed_by_driver_libraries_is_ignored(play):
    machine = play(nvml=CHATTER, cuda=CHATTER)
    assert (machine.problems, described(machine)) == ((), WHOLE)
    assert preflight(machine, Reporter()).with_outcome("proven") == (0, 1)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("nvml", "cuda", "finding"),
    [
        (DIES, "", ("driver-not-asked", False)),
        (LEAVES, "", ("driver-not-asked", False)),
        ("", LEAVES, ("driver-not-asked", False)),
        (LEAVES, LEAVES, ("driver-not-asked", False)),
        # NVML lists a GPU, so no program can use CUDA.
        ("", DIES, ("driver-crashes", True)),
    ],
)
def test_libcuda_crash_is_blocking_next_to_a_gpu(play, nvml, cuda, finding):
    problems = play(nvml=nvml, cuda=cuda).problems
    assert {(problem.code, problem.blocking) for problem in problems} == {finding}


def test_preflight_detects_gpu_hidden_from_cuda(
    play,
):
    nameless = ("cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId")
    machine = play(
        *nameless, driver=FakeDriver((FakeGpu(), FakeGpu(hidden_from_cuda=True)))
    )
    assert machine.problems == ()
    result = preflight(machine, Reporter())
    assert [(problem.code, problem.gpus) for problem in result.problems] == [
        ("gpu-hidden-from-cuda", (1,))
    ]


def test_gpus_are_detected_without_optional_nvml_functions(play):
    least = (
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetCudaComputeCapability",
    )
    rest = (
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetComputeMode",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlShutdown",
    )
    system = (
        "nvmlSystemGetConfComputeState",
        "nvmlSystemGetCudaDriverVersion",
        "nvmlSystemGetCudaDriverVersion_v2",
        "nvmlErrorString",
    )
    machine = play(*least, *rest, *system)
    assert (machine.problems, described(machine)) == ((), WHOLE)
    assert str(machine.driver and machine.driver.cuda) == "13.0"
