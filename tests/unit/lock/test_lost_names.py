"""The names that a project's sources take from torch, with file and line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.lock.lost_names import names_used

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """\
import torch
import torch.nn as nn
import torchvision.models.utils
from torch._six import string_classes
from torch.utils.data import *
from .torch import other
import numpy
layer = nn.Linear(3, 4)
value = torch.symeig(layer.weight)
numpy.torch.no(self.torch.no)
"""


def test_imports_and_attributes_of_the_packages_are_found_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")

    uses = names_used(tmp_path, ["torch", "torchvision"])

    found = {(use.name, use.line) for use in uses}
    assert found >= {
        ("torch", 1),
        ("torch.nn", 2),
        ("torchvision.models.utils", 3),
        ("torch._six.string_classes", 4),
        ("torch.utils.data", 5),
        ("torch.nn.Linear", 8),
        ("torch.symeig", 9),
    }
    assert not any("no" in use.name.split(".") or "other" in use.name for use in uses)


def test_environments_and_what_is_no_python_are_passed_over(tmp_path: Path) -> None:
    for folder in ("env", ".hidden", "own"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "it.py").write_text("import torch\n", encoding="utf-8")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "old.py").write_text("import torch\nprint 'Python 2'\n", encoding="utf-8")
    (tmp_path / "escape.py").write_text("import numpy\nnumpy.load('\\d')\n", encoding="utf-8")

    assert [use.path for use in names_used(tmp_path, ["torch"])] == [tmp_path / "own" / "it.py"]
