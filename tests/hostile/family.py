"""A default index that has PyTorch's names too, newer, as wheels and as source whose setup leaves a mark."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.lab.index import StandInIndex
from tests.lab.stub_torch import modules
from tests.lab.wheels import make_sdist, make_wheel

NAMES = (
    "torchtriton", "pytorch-triton", "triton", "torchvision", "torchaudio", "torchao", "torchcodec", "xformers",
    "fbgemm-gpu", "torchdata", "torchcomms", "torchtune",
)  # fmt: skip
UNKNOWN = "torch-novelty"
"""A package of PyTorch's that nobody has heard of, which the torch index lists."""
TORCH, TAG = "2.14.1", "cu126"


@dataclass(frozen=True)
class Attack:
    """``index`` serves torch and the stranger's packages; ``mark`` is the file that their code would write."""

    index: StandInIndex
    mark: Path

    def plant(self, names, *, wheels=True, sources=True):
        """Put packages of these names on the default index, newer than anything."""
        folder, code = self.index.folder / "simple", f"open({str(self.mark)!r}, 'w').close()\n"
        for name in names:
            if wheels:
                make_wheel(
                    folder, name, "99.0", modules={f"{name.replace('-', '_')}/__init__.py": code}
                )
            if sources:
                setup = (
                    f"{code}from setuptools import setup\nsetup(name={name!r}, version='99.1')\n"
                )
                make_sdist(folder, name, "99.1", setup=setup)

    def demand(self, names):
        """Have the torch of the torch index demand them."""
        self._torch(self.index.folder / "whl" / TAG, f"{TORCH}+{TAG}", names)

    def demand_at_the_default_index(self, names):
        """Have the torch of the default index demand them."""
        self._torch(self.index.folder / "simple", TORCH, names)

    def list_own(self, names):
        """Have the torch index list them, as they should be."""
        for name in names:
            if not [*(self.index.folder / "whl" / TAG).glob(f"{name}-*")]:
                make_wheel(self.index.folder / "whl" / TAG, name, "0.1")

    def asked(self, names):
        """What was asked of the default index for these names."""
        begun = tuple(f"{place}{name}" for name in names for place in ("/simple/", "/files/"))
        paths = (request.path.replace("_", "-") for request in self.index.default.log)
        return [path for path in paths if path.startswith(begun)]

    def _torch(self, folder, version, names):
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        wheel = next(folder.glob(f"torch-{version}-{python}-*linux*_x86_64.whl"))
        wheel.unlink()
        tags = wheel.name.removeprefix(f"torch-{version}-").removesuffix(".whl")
        requires = ["filelock", "typing-extensions>=4.10.0", *names]
        make_wheel(folder, "torch", version, tags, requires=requires, modules=modules(version, TAG))
