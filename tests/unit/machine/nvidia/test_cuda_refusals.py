"""What else is known about a machine tells the causes of one CUDA error apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.base.machine import Driver, Environment, Gpu, Machine
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.catalog.failures.problems import FixContext
from gpuinstall.catalog.failures.table import load_errors, load_failures
from gpuinstall.machine.nvidia.cuda_causes import CudaContext, cuda_cause, cuda_refusal
from gpuinstall.machine.nvidia.preflight import UNCOMPILED
from gpuinstall.machine.prober import format_gpus

DRIVER = DriverVersion.parse("550.144.03")
OWN = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.144.03"
NEWER = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01"
OF_WINDOWS = "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_0a1b2c3d4e5f6071/libcuda.so.1.1"
COMPAT = "/usr/local/cuda/compat/libcuda.so.575.51.03"

ERRORS = load_errors("cuda")


def context(
    distribution: str | None = None, container: str | None = None, *, wsl: bool = False
) -> FixContext:
    there = Environment(wsl=wsl, container=container)
    return FixContext.of_machine(
        Machine(
            os="linux",
            arch="x86_64",
            driver=Driver(DRIVER),
            distribution=distribution,
            environment=there,
        )
    )


HOST = CudaContext(fix_context=context(), driver=DRIVER, library=OWN)


def inside(container: str, library: str = OWN) -> CudaContext:
    return replace(
        HOST, container=container, fix_context=context(container=container), library=library
    )


@pytest.mark.parametrize("status", ERRORS.keys() - UNCOMPILED.keys())
def test_every_cause_says_what_why_and_what_to_do_and_has_a_catalogue_entry(status):
    problem = cuda_refusal(status, HOST)
    assert problem.id in load_failures()
    assert problem.code == problem.code.lower()
    assert problem.why
    assert problem.fix
    assert "{" not in problem.message
    assert "\n" not in problem.message
    assert ERRORS[status].name in (problem.evidence or "")


@given(
    st.integers(),
    st.builds(
        CudaContext,
        wsl=st.booleans(),
        container=st.none() | st.text(),
        library=st.none() | st.text(),
    ),
)
def test_any_number_in_any_context_is_a_problem(status, context):
    assert cuda_refusal(status, context).blocking


def test_an_unlisted_error_claims_no_cause():
    assert cuda_cause(4711, HOST).code == "cuda-error"
    assert cuda_refusal(4711, HOST).id is None


def test_differing_versions_are_named_and_mended_by_a_reboot_or_a_reload():
    problem = cuda_refusal(803, replace(HOST, library=NEWER))
    assert problem.message == "the kernel module (550.144.03) and libcuda (550.163.01) differ"
    assert (problem.id, problem.needs) == ("F03", ("root", "reboot"))
    assert (problem.fix or "").startswith("sudo reboot")
    assert "sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia" in (problem.fix or "")


def test_a_mismatch_in_a_container_is_mended_there():
    problem = cuda_refusal(803, inside("apptainer", NEWER))
    assert problem.id == "F03"
    assert (problem.fix or "").startswith("Start the container again")


def test_a_library_without_a_release_in_its_name_is_of_no_other_one():
    lent = replace(HOST, wsl=True, fix_context=context(wsl=True), library=OF_WINDOWS)
    assert lent.library_version is None
    assert "1.1" not in cuda_refusal(803, lent).message


@pytest.mark.parametrize("status", [803, 804])
def test_a_forward_compatibility_library_is_named_whatever_the_number(status):
    problem = cuda_refusal(status, inside("docker", COMPAT))
    assert problem.id == "F11"
    assert "/usr/local/cuda/compat" in (problem.fix or "")


def test_forward_compatibility_without_its_package_is_a_half_done_update():
    assert cuda_refusal(804, replace(HOST, library=NEWER)).id == "F03"
    assert (cuda_refusal(804, HOST).fix or "").startswith("unset LD_LIBRARY_PATH")
    assert "start from an image" in (cuda_refusal(804, inside("docker")).fix or "")


@pytest.mark.parametrize("status", [100, 101, 999])
def test_in_a_container_cuda_lacks_a_device_node_that_nvml_does_not_need(status):
    problem = cuda_refusal(status, inside("podman"))
    assert (problem.code, problem.id) == ("device-nodes-unusable", "F13")
    assert "nvidia.com/gpu=all" in (problem.fix or "")


@pytest.mark.parametrize("status", [100, 999])
def test_on_the_host_a_missing_uvm_node_is_made(status):
    problem = cuda_refusal(status, replace(HOST, without_uvm=True))
    assert problem.id == "F13"
    assert "sudo nvidia-modprobe -c 0 -u" in (problem.fix or "")
    assert cuda_refusal(status, HOST).id == {100: "F15", 999: "F12"}[status]


def test_in_wsl_windows_driver_and_a_linux_driver_in_its_way_are_told_apart():
    lost = cuda_refusal(999, CudaContext(wsl=True, library="/usr/lib/wsl/lib/libcuda.so.1"))
    assert "wsl.exe --shutdown" in (lost.fix or "")
    assert cuda_refusal(100, CudaContext(wsl=True, library=OWN)).code == "wsl-linux-driver"


def test_a_card_in_mig_mode_without_instances_is_named_as_such():
    assert cuda_refusal(100, replace(HOST, unsliced=True)).id == "F17"


def test_several_blackwells_point_at_heterogeneous_memory():
    gpus = tuple(Gpu(index, compute_capability=ComputeCapability(12, 0)) for index in range(2))
    many = CudaContext.of(Machine(os="linux", arch="x86_64", gpus=gpus))
    assert "uvm_disable_hmm=1" in (cuda_refusal(3, many).fix or "")
    assert "uvm_disable_hmm=1" not in (cuda_refusal(3, HOST).fix or "")


@pytest.mark.parametrize(
    ("distribution", "command"),
    [
        ("Ubuntu 22.04", "sudo apt-get install nvidia-fabricmanager-550"),
        ("Rocky Linux 9.4", "sudo dnf install nvidia-fabricmanager-550.144.03"),
        ("Arch Linux", "Install nvidia-fabricmanager 550.144.03"),
        (None, "Install nvidia-fabricmanager 550.144.03"),
    ],
)
def test_the_fabric_manager_comes_in_the_drivers_version(distribution, command):
    problem = cuda_refusal(802, replace(HOST, fix_context=context(distribution)))
    assert (problem.fix or "").startswith(command)
    assert "systemctl enable --now nvidia-fabricmanager" in (problem.fix or "")


def test_the_fabric_manager_of_a_container_runs_on_its_host():
    assert (cuda_refusal(802, inside("docker")).fix or "").startswith("On the host: sudo systemctl")


def test_a_context_takes_the_driver_and_the_place_from_the_machine():
    machine = Machine(
        os="linux", arch="x86_64", environment=Environment(container="lxc"), driver=Driver(DRIVER)
    )
    assert CudaContext.of(machine, OWN) == CudaContext(
        False, "lxc", context(container="lxc"), DRIVER, OWN
    )


@pytest.mark.parametrize(
    "library",
    [None, "libcuda.so.1", "/usr/lib/libcuda.so.1", "nvcuda.dll", "libcuda.so.x (deleted)"],
)
def test_a_library_without_a_version_differs_from_nothing(library):
    context = replace(HOST, library=library)
    assert context.library_version is None
    assert not context.differs


def test_gpus_are_named_as_one_would_say_them():
    assert [format_gpus(()), format_gpus((3,)), format_gpus((0, 2, 5))] == [
        "the GPU",
        "GPU 3",
        "GPUs 0, 2 and 5",
    ]
