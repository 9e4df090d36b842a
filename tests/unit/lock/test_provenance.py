from __future__ import annotations

import pytest

from gpuinstall.errors import InstallationError
from gpuinstall.lock.document import LockedFile
from gpuinstall.lock.provenance import check
from tests.unit.lock.wheels_here import torch

TORCH = torch()
NUMPY = LockedFile("numpy", "https://default.example/numpy-2.3.4-py3-none-any.whl")


def test_a_family_file_from_its_page_and_any_other_file_pass() -> None:
    check((LockedFile("torch", TORCH.url), NUMPY), {"torch": (TORCH,)})


@pytest.mark.parametrize(
    "file",
    [
        LockedFile("torch", "https://default.example/torch-2.14.1-cp312-cp312-manylinux_2_28_x86_64.whl"),
        LockedFile("torch", TORCH.url + "x"),
        LockedFile("numpy", TORCH.url),
        LockedFile("numpy", "https://default.example/..%2f..%2fnumpy-2.3.4-py3-none-any.whl"),
        LockedFile("numpy", "https://default.example/a%5Cnumpy-2.3.4-py3-none-any.whl"),
        LockedFile("numpy", "https://default.example/"),
    ],
)
def test_a_file_that_strayed_is_refused(file: LockedFile) -> None:
    with pytest.raises(InstallationError) as caught:
        check((file,), {"torch": (TORCH,)})
    assert caught.value.code == "wrong-source"
    assert file.package in caught.value.message
