"""Causes of one CUDA error, distinguished by other facts."""

import pytest

from gpuinstall.base.machine import Driver, Environment, Machine
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.catalog.failures.problems import FixContext
from gpuinstall.catalog.failures.table import load_cuda_errors, load_failures
from gpuinstall.machine.nvidia.diagnosis import explain_cuda_error
from gpuinstall.machine.symptoms import create_finding

DRIVER = DriverVersion.parse("550.144.03")
OWN = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.144.03"
NEWER = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01"
OF_WSL = "/usr/lib/wsl/lib/libcuda.so.1"
OF_WINDOWS = "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_0a1b2c3d4e5f6071/libcuda.so.1.1"
COMPAT = "/usr/local/cuda/compat/libcuda.so.575.51.03"
BLACKWELLS = [ComputeCapability(12, 0)] * 2
HOPPERS = [ComputeCapability(9, 0)] * 2

ERRORS = load_cuda_errors()


def refusal(status, library=OWN, *marks, chips=(), distribution=None, **place):
    environment = Environment(
        wsl=place.get("wsl", False), container=place.get("container")
    )
    machine = Machine(
        "linux",
        "x86_64",
        environment=environment,
        driver=Driver(DRIVER),
        distribution=distribution,
    )
    place |= dict.fromkeys(marks, True)
    found = explain_cuda_error(status, library, DRIVER, chips, place)
    context = FixContext.of_machine(machine)
    return create_finding(
        found.symptom, found.circumstances, context, evidence=found.evidence
    )


@pytest.mark.parametrize("status", ERRORS)
def test_every_cuda_error_has_message_and_fix(status):
    problem = refusal(status)
    assert problem.id in load_failures()
    assert problem.why
    assert problem.fix or problem.code == "kernel-not-proven"
    assert "{" not in problem.message
    assert ERRORS[status][0] in (problem.evidence or "")


# The refusal, its failure entry, and a part of its fix.
CASES = {
    "other releases": (refusal(803, NEWER), "F03", "sudo rmmod nvidia_drm"),
    "in a container": (
        refusal(803, NEWER, container="apptainer"),
        "F03",
        "docker restart <container>",
    ),
    "compatibility libraries, 803": (
        refusal(803, COMPAT),
        "F11",
        "/usr/local/cuda/compat",
    ),
    "compatibility libraries, 804": (
        refusal(804, COMPAT, container="docker"),
        "F11",
        "/usr/local/cuda/compat",
    ),
    "half updated": (refusal(804, NEWER), "F03", "sudo reboot"),
    "newer than the module": (refusal(804), "F11", "unset LD_LIBRARY_PATH"),
    "newer image": (
        refusal(804, container="docker"),
        "F11",
        "rm -rf /usr/local/cuda/compat && ldconfig",
    ),
    "container without a node": (
        refusal(100, container="podman"),
        "F13",
        "nvidia.com/gpu=all",
    ),
    "host without its node": (
        refusal(999, OWN, "without-uvm"),
        "F13",
        "sudo nvidia-modprobe -c 0 -u",
    ),
    "an old toolkit": (refusal(500, container="docker"), "F23", "Docker Desktop"),
    "no fabric": (refusal(802, OWN, "without-fabric"), "F10", "conf-compute -f"),
    "a fabric on its way": (
        refusal(802, OWN, "fabric-in-progress", distribution="Ubuntu 24.04"),
        "F10",
        "nvidia-smi -q | grep -A 3 Fabric",
    ),
    "host, 100": (refusal(100), "F15", ""),
    "WSL lost Windows": (refusal(999, OF_WSL, wsl=True), "F23", "wsl.exe --shutdown"),
    "a Linux driver in WSL": (refusal(100, OWN, wsl=True), "F23", "--purge"),
    "Blackwells": (refusal(3, chips=BLACKWELLS), "F14", "uvm_disable_hmm=1"),
    "a fabric on Ubuntu": (
        refusal(802, chips=HOPPERS, distribution="Ubuntu 22.04"),
        "F10",
        'sudo apt-get install "nvidia-fabricmanager-550=550.144.03*"',
    ),
    "a fabric on Rocky": (
        refusal(802, chips=HOPPERS, distribution="Rocky Linux 9.4"),
        "F10",
        "sudo dnf install nvidia-fabricmanager-550.144.03",
    ),
    "a fabric of the host": (
        refusal(802, chips=HOPPERS, container="docker"),
        "F10",
        "sudo systemctl enable --now nvidia-fabricmanager   # on the host",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_cause_and_fix_match_the_machine(case):
    problem, entry, fix = CASES[case]
    assert problem.id == entry
    assert fix in (problem.fix or "")


@pytest.mark.parametrize(
    "library",
    [None, "libcuda.so.1", OF_WSL, OF_WINDOWS, "nvcuda.dll", "libcuda.so.x (deleted)"],
)
def test_error_803_without_version_claims_no_mismatch(library):
    assert "differ" not in refusal(803, library).message.replace("libraries differ", "")
