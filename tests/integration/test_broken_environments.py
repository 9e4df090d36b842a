"""Tests with a damaged torch in a real environment."""

import os
import shutil
from pathlib import Path

import pytest

from gpuinstall.base.reporter import Reporter
from gpuinstall.diagnose.examination import examine
from gpuinstall.machine.probe import read_machine
from gpuinstall.sources import read_sources
from tests.lab.environments import WHEEL, packages, rewrite
from tests.lab.index import SimulatedIndex
from tests.unit.diagnose.evidence import found, installed_in

GONE = {
    "libtorch_cpu.so": ["torch/lib/libtorch_cpu.so"],
    "libshm.so": ["torch/lib/libshm.so"],
    "torch's OpenMP library": ["torch/lib/libgomp*"],
    "the module torch._C": ["torch/_C.cpython-*.so"],
    "torch/__init__.py": ["torch/__init__.py"],
    "torch/nn": ["torch/nn"],
    "torch without its record": ["torch/*"],
    "torch": ["torch", "torch-*.dist-info", "functorch", "torchgen"],
    "everything": ["*"],
    "torchgen": ["torchgen"],
    "typing_extensions.py without its record": ["typing_extensions.py"],
    "typing_extensions": ["typing_extensions*"],
    "mpmath, which sympy needs": ["mpmath*"],
    "filelock without its record": ["filelock"],
    "jinja2": ["jinja2*"],
}
CUT = {"torch/lib/libc10.so": 1000, "torch/version.py": 40, "torch/functional.py": 0}
BROKEN = (
    *GONE,
    *CUT,
    "another Python",
    "another processor",
    "two records",
    "the interpreter",
)


def break_it(what, site):
    """Damage an environment whose files are hard links to those in a copy."""
    module = next(site.glob("torch/_C.cpython-*.so"))
    for path in [
        path for name in GONE.get(what, ()) for path in sorted(site.glob(name))
    ]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if what in CUT:
        start = (site / what).read_bytes()[: CUT[what]]
        (site / what).unlink()
        (site / what).write_bytes(start)
    elif what == "another Python":
        minor = module.name.split("-")[1]
        other = f"3{int(minor[1:]) + 1}"
        module.rename(module.with_name(module.name.replace(minor, other)))
        [record] = site.glob("torch-*.dist-info/RECORD")
        rewrite(
            record, record.read_text().replace(f"cpython-{minor}", f"cpython-{other}")
        )
    elif what == "another processor":
        content = bytearray(module.read_bytes())
        content[18:20] = (183).to_bytes(2, "little")
        module.unlink()
        module.write_bytes(content)
    elif what == "two records":
        shutil.copytree(
            next(site.glob("torch-*.dist-info")), site / "torch-2.9.1.dist-info"
        )
    elif what == "the interpreter":
        python = site.parents[2] / "bin" / "python"
        python.unlink()
        python.symlink_to("/nowhere/python3.11")


@pytest.fixture(scope="session")
def torch_index(tmp_path_factory):
    """Serve a PyTorch index with a wheel that repairs torch."""
    folder = tmp_path_factory.mktemp("torch-index")
    (folder / "whl" / "cpu").mkdir(parents=True)
    for wheel in Path(os.environ.get("PIP_FIND_LINKS", "")).glob(WHEEL):
        (folder / "whl" / "cpu" / wheel.name).symlink_to(wheel)
    with SimulatedIndex(folder) as index:
        yield index.torch_index


@pytest.fixture
def sources(torch_index, tmp_path):
    return read_sources(torch_index, tmp_path)


@pytest.fixture
def examined(sources, tmp_path, monkeypatch):
    """Return a function that runs ``doctor`` on an environment."""
    monkeypatch.chdir(tmp_path)

    def run(clone):
        silent = Reporter()
        return examine(
            tmp_path,
            clone,
            read_machine(),
            request=None,
            refuse=None,
            torch_index=sources.addresses.torch_index,
            gate=None,
            reporter=silent,
            named=True,
            stamp=None,
        ).findings

    return run


@pytest.mark.parametrize("what", ["torch/lib/libc10.so", "another Python"])
def test_damaged_minimal_torch_is_reported_with_fix(what, linked_torch, examined):
    assert examined(linked_torch) == ()
    break_it(what, packages(linked_torch))
    findings = examined(linked_torch)
    assert findings[0].blocking
    assert findings[0].fixes


@pytest.mark.heavy
@pytest.mark.parametrize("what", BROKEN)
def test_damaged_torch_is_reported_with_fix(what, torch_copy, examined):
    break_it(what, packages(torch_copy))
    findings = examined(torch_copy)
    # torch imports sympy, and this part of it, late.
    assert findings[0].blocking or what == "mpmath, which sympy needs"
    assert findings[0].fixes


def test_intact_environment_is_not_reported_as_damaged(real_torch):
    assert found(venv=real_torch, packages=installed_in(real_torch)) == []
