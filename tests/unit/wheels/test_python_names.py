"""The names that a wheel's Python sources bind, and those that they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuinstall.wheels.python_names import PythonNames
from gpuinstall.wheels.ranges import FileRanges
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.wheels import make_wheel

if TYPE_CHECKING:
    from pathlib import Path

MODULES: dict[str, str | bytes] = {
    "torch/__init__.py": """
from typing import TYPE_CHECKING
from ._linalg_utils import _symeig as symeig
from torch import nn as nn
from os import path
import torch.cuda
for name in ("half",):
    globals()[name] = name
if TYPE_CHECKING:
    from ._C import *
try:
    version = "1"
except ImportError:
    fallback = 2
def save():
    local = 1
class Tensor: ...
""",
    "torch/_linalg_utils.py": """
def _symeig(input):
    "Was removed."
    raise RuntimeError("removed")
def eigh():
    if True:
        raise RuntimeError("sometimes")
""",
    "torch/_C/__init__.pyi": "from torch._C._functions import *\nfloat16: int\n",
    "torch/_C/_functions.pyi": "from torch._C import *\ndef add() -> None: ...\n",
    "torch/_C.cpython-311-x86_64-linux-gnu.so": b"",
    "torch/nn/__init__.py": "",
    "torch/nn/modules.py": "class Module: ...\n",
    "torch/lazy.py": 'def __getattr__(name):\n    return {"later": 1}[name]\n',
    "torch/newer.py": "match = :\n",
    "torch/cuda.py": "",
}


@pytest.fixture
def names(tmp_path: Path) -> PythonNames:
    wheel = make_wheel(tmp_path, "torch", "2.7.1", modules=MODULES)
    return PythonNames(WheelReader(FileRanges(wheel)))


@pytest.mark.parametrize(
    "name",
    [
        "torch",
        "torch.nn",
        "torch.nn.modules.Module",
        "torch.nn.modules.Module.forward",
        "torch.Tensor",
        "torch.save",
        "torch.version",
        "torch.fallback",
        "torch.add",
        "torch.float16",
        "torch._C",
        "torch.path.join",
        "torch._linalg_utils.eigh",
        "torch.lazy.later",
    ],
)
def test_what_a_module_binds_in_whatever_way_is_there(names: PythonNames, name: str) -> None:
    assert names.has(name)


@pytest.mark.parametrize(
    "name",
    [
        "torch._six",
        "torch._six.string_classes",
        "torch.symeig",
        "torch.local",
        "torch.nn.functional",
        "torch.lazy.never",
        "torchvision",
    ],
)
def test_what_no_module_binds_is_not_there(names: PythonNames, name: str) -> None:
    assert not names.has(name)
