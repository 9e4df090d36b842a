"""Tests of ``--relax`` with old pins and a new GPU."""

from pathlib import Path

import pytest
import tomli

from tests.lab.workshop import Workshop

pytestmark = pytest.mark.network

OF_2022 = """\
torch==1.12.1+cu113
torchvision==0.13.1+cu113
einops==0.4.1
numpy==1.23.1
"""
MACHINE = ("--gpu", "RTX 5090", "--driver", "580.95.05")
TRAIN = """\
import torch
from torch._six import string_classes
from torch.utils.data import DataLoader
from torchvision.models.utils import load_state_dict_from_url
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.transforms import functional_tensor
torch.add(torch.Tensor(), torch.linalg.eigh)
"""


@pytest.fixture
def workshop(tmp_path):
    variables = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": ""}
    made = Workshop.made(tmp_path, variables)
    (made.folder / "requirements.txt").write_text(OF_2022, "utf-8")
    (made.folder / "train.py").write_text(TRAIN, "utf-8")
    return made


def test_old_pins_are_relaxed_for_a_new_gpu(workshop):
    lock = workshop.document("lock", *MACHINE, "--relax")["data"]["locks"][0]

    document = tomli.loads(Path(lock["path"]).read_text("utf-8"))
    versions = {package["name"]: package["version"] for package in document["packages"]}
    assert document["tool"]["gpuinstall"]["relaxed"] == {
        "torch": "torch==1.12.1+cu113",
        "torchvision": "torchvision==0.13.1+cu113",
    }
    assert (versions["einops"], versions["numpy"]) == ("0.4.1", "1.23.1")
