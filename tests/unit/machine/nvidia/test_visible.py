import pytest

from gpuinstall.base.machine import Gpu
from gpuinstall.machine.container import JOBS
from gpuinstall.machine.nvidia.libraries import job_devices
from gpuinstall.machine.prober import is_visible

CARD = Gpu(4, uuid="GPU-bbbb")


@pytest.mark.parametrize("scheduler", JOBS)
def test_only_a_schedulers_job_keeps_its_cards(scheduler):
    assert job_devices({scheduler: "42", "CUDA_VISIBLE_DEVICES": "3"}) == "3"
    assert job_devices({scheduler: "42"}) is None
    assert job_devices({scheduler: "", "CUDA_VISIBLE_DEVICES": "3"}) is None
    assert job_devices({"CUDA_VISIBLE_DEVICES": "3"}) is None


@pytest.mark.parametrize(
    "devices", ["1", "0,1", " 0 , 1 ", "GPU-bb", "MIG-2", "GPU-aaaa,MIG-2"]
)
def test_a_card_is_given_by_its_place_or_the_beginning_of_a_uuid(devices):
    assert is_visible(devices, 1, CARD, "MIG-2")


@pytest.mark.parametrize(
    "devices",
    ["", "0", "4", "11", "-1", "NoDevFiles", "-1,1", "NoDevFiles,1", ",1", "MIG-3"],
)
def test_a_list_ends_with_what_can_name_no_card(devices):
    assert not is_visible(devices, 1, CARD, "MIG-2")
