"""Tests that PyTorch packages are installed only from trusted sources."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomli

from tests.lab.cases import mostly_heavy
from tests.lab.host import Answer
from tests.lab.index import SimulatedIndex
from tests.lab.projects import make_sdist
from tests.lab.stub_torch import modules
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

NAMES = (
    "torchtriton", "pytorch-triton", "triton", "torchvision", "torchaudio", "torchao", "torchcodec", "xformers",
    "fbgemm-gpu", "torchdata", "torchcomms", "torchtune",
)  # fmt: skip
UNKNOWN = "torch-novelty"
"""An unknown PyTorch package that the torch index lists."""
TORCH, TAG = "2.14.1", "cu126"


@dataclass(frozen=True)
class Attack:
    """An index with malicious packages, and a file that their code writes."""

    index: SimulatedIndex
    mark: Path

    def plant(self, names, *, wheels=True):
        """Add newer packages of these names to the default index."""
        folder, code = (
            self.index.folder / "simple",
            f"open({str(self.mark)!r}, 'w').close()\n",
        )
        for name in names:
            if wheels:
                make_wheel(
                    folder,
                    name,
                    "99.0",
                    modules={f"{name.replace('-', '_')}/__init__.py": code},
                )
            make_sdist(folder, name, "99.1", is_silent=True)

    def demand(self, names):
        """Make torch on its index require these packages."""
        self._torch(self.index.folder / "whl" / TAG, f"{TORCH}+{TAG}", names)

    def demand_at_the_default_index(self, names):
        """Make torch on the default index require these packages."""
        self._torch(self.index.folder / "simple", TORCH, names)

    def list_own(self, names):
        """Add packages with these names to the torch index."""
        for name in names:
            if not [*(self.index.folder / "whl" / TAG).glob(f"{name}-*")]:
                make_wheel(self.index.folder / "whl" / TAG, name, "0.1")

    def asked(self, names):
        """Return the requests to the default index for these packages."""
        begun = tuple(
            f"{place}{name}" for name in names for place in ("/simple/", "/files/")
        )
        paths = (request.path.replace("_", "-") for request in self.index.default.log)
        return [path for path in paths if path.startswith(begun)]

    def _torch(self, folder, version, names):
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        wheel = next(folder.glob(f"torch-{version}-{python}-*linux*_x86_64.whl"))
        wheel.unlink()
        tags = wheel.name.removeprefix(f"torch-{version}-").removesuffix(".whl")
        requires = ["filelock", "typing-extensions>=4.10.0", *names]
        make_wheel(
            folder,
            "torch",
            version,
            tags,
            requires=requires,
            modules=modules(version, TAG),
        )


LOCK = ("lock", "--target", TAG, f"torch=={TORCH}")
EACH = mostly_heavy(NAMES, {"xformers"})


@pytest.fixture
def attack(stand_in, tmp_path):
    return Attack(stand_in, tmp_path / "executed")


@pytest.fixture
def workshop(workshop, attack):
    """Return a folder in which build code writes the mark."""
    return workshop.having(LAB_RAN=str(attack.mark))


@pytest.mark.heavy
def test_torch_dependencies_come_from_the_torch_index(attack, workshop):
    names = (*NAMES, UNKNOWN)
    attack.plant(names)
    attack.demand(names)
    attack.list_own(names)
    workshop.document(*LOCK)
    packages = {
        package["name"]: package
        for package in tomli.loads(workshop.lock(f"pylock.{TAG}.toml"))["packages"]
    }
    assert packages.keys() >= {*names}
    assert all(
        f"/whl/{TAG}/" in wheel["url"]
        for name in names
        for wheel in packages[name]["wheels"]
    )
    workshop.document("lock", "check")
    workshop.document("install", "--dry-run", "--backend", TAG)
    assert attack.asked(names) == []
    assert not attack.mark.exists()


@pytest.mark.parametrize("name", EACH)
def test_package_missing_on_the_torch_index_is_rejected(attack, workshop, name):
    for wheel in (attack.index.folder / "whl" / TAG).glob(f"{name}-*"):
        wheel.unlink()
    attack.plant([name])
    attack.demand([name])
    error = workshop.refusal(*LOCK, exit_code=4)
    assert (error["code"], error["message"].partition(" ")[0]) == (
        "family-unlisted",
        name,
    )
    assert attack.asked([name]) == []
    assert not attack.mark.exists()
    assert workshop.entries() == set()


@pytest.mark.parametrize("name", EACH)
def test_packages_get_pytorch_dependencies_from_torch_index(attack, workshop, name):
    own = {
        wheel: wheel.read_bytes()
        for wheel in (attack.index.folder / "whl" / TAG).glob(f"{name}-*")
    }
    for wheel in own:
        wheel.unlink()
    attack.plant([name])
    make_wheel(
        attack.index.folder / "simple", "some-program", "1.0", requires=[name, "torch"]
    )
    error = workshop.refusal(*LOCK, "some-program", exit_code=4)
    assert error["code"] == "family-unlisted"
    for wheel, content in own.items():  # torch can require this exact version
        wheel.write_bytes(content)
    attack.list_own([name])
    workshop.document(*LOCK, "some-program")
    assert attack.asked([name]) == []
    assert not attack.mark.exists()


@pytest.mark.heavy
def test_failing_torch_index_does_not_use_default_index(attack, workshop):
    attack.plant(["torchdata"])
    attack.demand(["torchdata"])
    attack.list_own(["torchdata"])
    respond = attack.index.torch.respond

    def broken(path, headers):
        return Answer(500) if "torchdata" in path else respond(path, headers)

    attack.index.torch.respond = broken
    assert workshop.refusal(*LOCK, exit_code=4)["code"] in {
        "unreachable",
        "family-unlisted",
    }
    assert attack.asked(["torchdata"]) == []
    assert not attack.mark.exists()


def test_family_packages_are_never_built(attack, workshop):
    attack.plant(["torchdata"], wheels=False)
    attack.demand_at_the_default_index(["torchdata"])
    silent = {**workshop.variables, "GPUINSTALL_TORCH_INDEX": "http://127.0.0.1:9/whl"}
    workshop = Workshop(workshop.folder, workshop.caches, silent)
    workshop.document("lock", "--target", "cu130", f"torch=={TORCH}", exit_code=4)
    assert not attack.mark.exists()
