from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine, MigDevice
from gpuinstall.base.values import replace
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


def targets(machine=MACHINE, environ=(), kind="cuda", gpus=None):
    return device_targets(machine, kind=kind, gpus=gpus, environ=dict(environ))


def reasons(environ=(), machine=MACHINE):
    return [target.unproven for target in targets(machine, environ)]


def test_gpus_are_shown_one_by_one_by_uuid():
    found = targets()
    visible = [target.environment["CUDA_VISIBLE_DEVICES"] for target in found]
    assert [target.index for target in found] == [0, 1]
    assert visible == ["GPU-aaa", "GPU-bbb"]
    assert found[0].environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_the_display_of_a_virtual_machine_is_no_gpu_of_nvidia():
    display = Gpu(2, pci_id="1af4:1050")
    found = targets(replace(MACHINE, gpus=(*MACHINE.gpus, display)))
    assert [target.index for target in found] == [0, 1]


def test_a_gpu_without_a_uuid_is_shown_by_its_place():
    found = targets(Machine("linux", "x86_64", gpus=(Gpu(0), Gpu(3))))
    assert [(target.index, target.visible) for target in found] == [
        (0, ("0",)),
        (3, ("1",)),
    ]


def test_a_job_is_given_gpus_by_index_or_by_the_beginning_of_a_uuid():
    other = "not assigned to this job: CUDA_VISIBLE_DEVICES="
    expected = {
        "1": [f"{other}1", None],
        "0, 1": [None, None],
        "GPU-bb": [f"{other}GPU-bb", None],
        "": [other, other],
    }
    job = {"SLURM_JOB_ID": "7"}
    found = {text: reasons({**job, "CUDA_VISIBLE_DEVICES": text}) for text in expected}
    assert found == expected
    assert reasons(job) == reasons({"CUDA_VISIBLE_DEVICES": "1"}) == [None, None]


def test_a_jobs_ordinals_count_cards_and_not_their_slices():
    machine = replace(MACHINE, gpus=(SLICED, Gpu(1, "NVIDIA H100", "GPU-b")))
    found = targets(machine, {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "1"})
    assert [(target.device, target.visible) for target in found] == [
        ("none", ()),
        ("none", ()),
        ("cuda", ("GPU-b",)),
    ]


def test_a_gpu_that_the_probe_found_broken_is_left_alone():
    lost = Finding("gpu-lost", "GPU 1 is lost", gpus=(1,))
    machine = MACHINE.with_problems([lost])
    assert reasons(machine=machine) == [None, "GPU 1 is lost"]


def test_only_whole_gpus_that_can_be_tried_work_together():
    every = all_gpus_target(targets())
    assert every is not None
    assert (every.device, every.visible) == ("all", ("GPU-aaa", "GPU-bbb"))
    assert all_gpus_target(targets(replace(MACHINE, gpus=(SLICED,)))) is None
    one = all_gpus_target(targets(gpus=(0,)))
    assert one
    assert one.visible == ("GPU-aaa",)


def test_a_machine_without_gpus_has_a_device_of_no_kind():
    (target,) = targets(replace(MACHINE, gpus=()))
    assert target.tested(unproven="none").label == "no usable GPU"


def test_level_zero_counts_cards_as_the_bus_does():
    card = Gpu(0, "Intel Arc B580", vendor="intel", architecture="20.1")
    (target,) = targets(replace(MACHINE, gpus=(card,)), kind="xpu")
    assert target.environment == {
        "ONEAPI_DEVICE_SELECTOR": "level_zero:0",
        "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
        "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
    }
    assert target.misleading == {"ZE_AFFINITY_MASK"}


def test_hip_counts_all_gpus_whatever_hides_some():
    card = Gpu(0, "AMD Instinct MI300X", vendor="amd", architecture="gfx942")
    (target,) = targets(replace(MACHINE, gpus=(card,)), kind="rocm")
    assert target.environment == {"HIP_VISIBLE_DEVICES": "0"}
    assert target.misleading == {
        "ROCR_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "CUDA_VISIBLE_DEVICES",
    }
