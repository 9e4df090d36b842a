from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine, MigDevice
from gpuinstall.verify.devices import all_gpus_target, device_targets

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


def names(environ, machine=MACHINE):
    found = device_targets(machine, kind="cuda", gpus=None, environ=environ)
    return [(target.name, target.unproven) for target in found]


def test_gpus_are_shown_one_by_one_by_uuid():
    found = device_targets(MACHINE, kind="cuda", gpus=None, environ={})
    assert [
        (target.index, target.environment["CUDA_VISIBLE_DEVICES"]) for target in found
    ] == [
        (0, "GPU-aaa"),
        (1, "GPU-bbb"),
    ]
    assert found[0].environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_a_gpu_without_a_uuid_is_shown_by_its_place():
    machine = Machine("linux", "x86_64", gpus=(Gpu(0), Gpu(3)))
    found = device_targets(machine, kind="cuda", gpus=None, environ={})
    assert [(target.index, target.visible) for target in found] == [
        (0, ("0",)),
        (3, ("1",)),
    ]


def test_a_job_is_given_gpus_by_index_or_by_the_beginning_of_a_uuid():
    job = {"SLURM_JOB_ID": "7"}
    assert (
        names(job | {"CUDA_VISIBLE_DEVICES": "1"})[0][1]
        == "not assigned to this job: CUDA_VISIBLE_DEVICES=1"
    )
    assert names(job | {"CUDA_VISIBLE_DEVICES": "0, 1"}) == [
        ("NVIDIA A", None),
        ("NVIDIA B", None),
    ]
    assert [
        unproven for _, unproven in names(job | {"CUDA_VISIBLE_DEVICES": "GPU-bb"})
    ].index(None) == 1
    assert None not in [
        unproven for _, unproven in names(job | {"CUDA_VISIBLE_DEVICES": ""})
    ]
    assert names(job) == [("NVIDIA A", None), ("NVIDIA B", None)]
    assert names({"CUDA_VISIBLE_DEVICES": "1"}) == [
        ("NVIDIA A", None),
        ("NVIDIA B", None),
    ]


def test_a_jobs_ordinals_count_cards_and_not_their_slices():
    second = Gpu(1, "NVIDIA H100", "GPU-b")
    machine = Machine("linux", "x86_64", gpus=(SLICED, second))
    found = device_targets(
        machine,
        kind="cuda",
        gpus=None,
        environ={"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "1"},
    )
    assert [(target.device, target.visible) for target in found] == [
        ("none", ()),
        ("none", ()),
        ("cuda", ("GPU-b",)),
    ]


def test_a_gpu_that_the_probe_found_broken_is_left_alone():
    lost = Finding("gpu-lost", "GPU 1 is lost", gpus=(1,))
    machine = Machine(
        "linux",
        "x86_64",
        gpus=(Gpu(0, "NVIDIA A", "GPU-aaa"), Gpu(1), Gpu(2, "NVIDIA C")),
    )
    assert [unproven for _, unproven in names({}, machine.with_problems([lost]))] == [
        None,
        "GPU 1 is lost",
        None,
    ]


def test_only_whole_gpus_that_can_be_tried_work_together():
    every = all_gpus_target(device_targets(MACHINE, kind="cuda", gpus=None, environ={}))
    assert every is not None
    assert (every.device, every.visible) == ("all", ("GPU-aaa", "GPU-bbb"))
    assert (
        all_gpus_target(
            device_targets(
                Machine("linux", "x86_64", gpus=(SLICED,)),
                kind="cuda",
                gpus=None,
                environ={},
            )
        )
        is None
    )
    one = all_gpus_target(device_targets(MACHINE, kind="cuda", gpus=(0,), environ={}))
    assert one
    assert one.visible == ("GPU-aaa",)


def test_level_zero_counts_cards_as_the_bus_does():
    card = Gpu(0, "Intel Arc B580", vendor="intel", architecture="20.1")
    (target,) = device_targets(
        Machine("linux", "x86_64", gpus=(card,)), kind="xpu", gpus=None, environ={}
    )

    assert target.environment == {
        "ONEAPI_DEVICE_SELECTOR": "level_zero:0",
        "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
        "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
    }
    assert target.misleading == {"ZE_AFFINITY_MASK"}


def test_hip_counts_all_gpus_whatever_hides_some():
    card = Gpu(0, "AMD Instinct MI300X", vendor="amd", architecture="gfx942")
    (target,) = device_targets(
        Machine("linux", "x86_64", gpus=(card,)), kind="rocm", gpus=None, environ={}
    )

    assert target.environment == {"HIP_VISIBLE_DEVICES": "0"}
    assert target.misleading == {
        "ROCR_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "CUDA_VISIBLE_DEVICES",
    }
