import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine, MigDevice
from gpuinstall.base.values import replace
from gpuinstall.machine.options import machine_from_options
from gpuinstall.verify.devices import create_all_gpus_target, select_targets

MACHINE = Machine(
    "linux",
    "x86_64",
    gpus=(Gpu(1, "NVIDIA B", "GPU-bbb"), Gpu(0, "NVIDIA A", "GPU-aaa")),
)
SLICED = Gpu(
    0,
    "NVIDIA H100",
    "GPU-a",
    mig=True,
    mig_devices=(MigDevice("MIG-1", "1g.10gb"), MigDevice("MIG-2")),
)


def targets(machine=MACHINE, kind="cuda", gpus=None):
    return select_targets(machine, kind=kind, gpus=gpus)


def test_each_check_process_sees_one_gpu_by_uuid():
    found = targets()
    visible = [
        target.select_environment({})["CUDA_VISIBLE_DEVICES"] for target in found
    ]
    assert [target.index for target in found] == [0, 1]
    assert visible == ["GPU-aaa", "GPU-bbb"]


def test_unusable_gpu_is_hidden_from_its_child():
    lost = Finding("gpu-lost", "GPU 1 is lost", gpus=(1,))
    found = targets(MACHINE.add_problems([lost]))
    assert [(target.device, target.visible, target.unproven) for target in found] == [
        ("cuda", ("GPU-aaa",), None),
        ("none", (), "GPU 1 is lost"),
    ]


def test_mig_device_has_name_of_gpu_and_profile():
    found = targets(replace(MACHINE, gpus=(SLICED,)))
    assert [(target.name, target.visible) for target in found] == [
        ("NVIDIA H100 MIG 1g.10gb", ("MIG-1",)),
        ("NVIDIA H100 MIG MIG-2", ("MIG-2",)),
    ]


def test_only_whole_gpus_are_tested_together():
    every = create_all_gpus_target(targets())
    assert every is not None
    assert (every.device, every.visible) == ("all", ("GPU-aaa", "GPU-bbb"))
    assert create_all_gpus_target(targets(replace(MACHINE, gpus=(SLICED,)))) is None
    one = create_all_gpus_target(targets(gpus=(0,)))
    assert one
    assert one.visible == ("GPU-aaa",)


def test_machine_without_gpus_has_no_usable_gpu():
    (target,) = targets(replace(MACHINE, gpus=()))
    assert target.result(unproven="none").label == "no usable GPU"


@pytest.mark.parametrize(
    ("name", "kind", "device", "environment", "misleading"),
    [
        (
            "RTX 4090",
            "cuda",
            "cuda",
            {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            {"NVIDIA_TF32_OVERRIDE"},
        ),
        (
            "MI300X",
            "rocm",
            "cuda",
            {"HIP_VISIBLE_DEVICES": "0"},
            {"ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES"},
        ),
        (
            "Arc B580",
            "xpu",
            "xpu",
            {
                "ONEAPI_DEVICE_SELECTOR": "level_zero:0",
                "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
                "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
            },
            {"ZE_AFFINITY_MASK"},
        ),
        ("M3 Max", "cpu", "mps", {"PYTORCH_ENABLE_MPS_FALLBACK": "0"}, set()),
    ],
)
def test_vendor_variables_make_only_one_gpu_visible(
    name, kind, device, environment, misleading
):
    (target,) = targets(machine_from_options((name,), "580"), kind=kind)
    variables = dict.fromkeys(misleading, "0") | {"KEPT": "1"}
    assert target.device == device
    assert target.select_environment(variables) == environment | {"KEPT": "1"}
