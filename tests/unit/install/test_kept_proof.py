"""A verification is valid only while the covered files are unchanged."""

import os
import shutil
import sys
from types import MappingProxyType
from typing import Any

import pytest

from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.values import replace
from gpuinstall.base.versions import DriverVersion
from gpuinstall.environments.packages import read_packages
from gpuinstall.install import state
from gpuinstall.install.state import read_valid_stamp, stamp_file
from gpuinstall.verify.files import create_stamp
from gpuinstall.verify.verdict import update_programs
from tests.lab.environments import put_package
from tests.unit.install.environments import MARKER

GPU = Gpu(index=0, name="NVIDIA L4", uuid="GPU-1")
MACHINE = Machine(
    "linux",
    "x86_64",
    "glibc",
    "2.36",
    gpus=(GPU,),
    driver=Driver(DriverVersion.parse("570.86.10")),
)
PASSED = {"status": "passed", "devices": []}
SITE = "lib/python3.12/site-packages"


TORCH: dict[str, Any] = {
    "requires": ("sympy",),
    "files": {"torch/lib/libtorch.so": "22"},
}
STARTER = {"starter.pth": "import starter\n"}


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """An environment with torch, its requirements, and two other packages."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    venv = tmp_path / "old"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    put(venv, "torch", **TORCH)
    put(venv, "torchvision", requires=("torch", "pillow"))
    put(venv, "starter", files=STARTER)
    for name in ("sympy", "numpy", "pillow", "einops"):
        put(venv, name)
    return venv


def put(venv, name, *, version="1.0", requires=(), files=MappingProxyType({})):
    """Write a package as an installer does."""
    files = {f"{name}/__init__.py": "", **files}
    put_package(venv / SITE, name, files, version=version, requires=requires)


def proven(venv):
    """Verify an environment, and write its stamp for this machine."""
    stamp = replace(create_stamp(venv), verdict=PASSED, driver=MACHINE.driver)
    stamp.write(stamp_file(MARKER.id, MACHINE))
    return stamp


def is_proven(venv, machine=MACHINE):
    return read_valid_stamp(venv, MARKER, machine) is not None


def test_verification_is_valid_only_on_its_machine(venv):
    proven(venv)
    others = {
        "another GPU": replace(MACHINE, gpus=(replace(GPU, uuid="GPU-2"),)),
        "another driver": replace(
            MACHINE, driver=Driver(DriverVersion.parse("580.95.05"))
        ),
        "no GPU": replace(MACHINE, gpus=()),
    }

    assert is_proven(venv)
    assert [name for name, machine in others.items() if is_proven(venv, machine)] == []


def appended(path):
    def change(venv):
        with (venv / path).open("a") as file:
            file.write("x")

    return change


def rewritten(path):
    """Return a function that replaces a file by an identical copy."""

    def change(venv):
        file = venv / path
        file.rename(file.with_suffix(".old"))
        shutil.copy2(file.with_suffix(".old"), file)

    return change


def removed(path):
    return lambda venv: (venv / path).unlink()


def written(path, text=""):
    def change(venv):
        (venv / path).parent.mkdir(exist_ok=True)
        (venv / path).write_text(text)

    return change


def another_python(venv):
    program = venv / "bin" / "python"
    program.unlink()
    program.symlink_to("/bin/sh")


CHANGES = {
    "torch's library touched": lambda venv: os.utime(
        venv / SITE / "torch/lib/libtorch.so", (1, 1)
    ),
    "another file of equal size and time": rewritten(f"{SITE}/torch/lib/libtorch.so"),
    "torch's library gone": removed(f"{SITE}/torch/lib/libtorch.so"),
    "torch": appended(f"{SITE}/torch-1.0.dist-info/RECORD"),
    "what torch requires": appended(f"{SITE}/sympy-1.0.dist-info/RECORD"),
    "numpy, which a check uses": appended(f"{SITE}/numpy-1.0.dist-info/RECORD"),
    "a program": appended(f"{SITE}/torchvision-1.0.dist-info/RECORD"),
    "what a program requires": removed(f"{SITE}/pillow-1.0.dist-info/RECORD"),
    "what Python runs at its start": written(f"{SITE}/new.pth", "import os\n"),
    "a sitecustomize": written(f"{SITE}/sitecustomize.py"),
    "a sitecustomize that is a package": written(f"{SITE}/sitecustomize/__init__.py"),
    "a module that Python imports at its start": appended(
        f"{SITE}/starter-1.0.dist-info/RECORD"
    ),
    "the system's packages": written(
        "pyvenv.cfg", "include-system-site-packages = true\n"
    ),
    "another Python": another_python,
}


def test_changed_files_invalidate_the_verification(venv):
    kept = []
    for name, change in CHANGES.items():
        copy = shutil.copytree(venv, venv.with_name(name), symlinks=True)
        proven(copy)
        assert is_proven(copy)
        change(copy)
        if is_proven(copy):
            kept.append(name)

    assert kept == []


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"])
def test_library_path_variable_invalidates_verification(venv, monkeypatch, name):
    proven(venv)

    monkeypatch.setenv(name, "/opt/other")

    assert not is_proven(venv)


def test_edits_without_reinstallation_keep_the_verification(venv):
    proven(venv)

    appended(f"{SITE}/einops-1.0.dist-info/RECORD")(venv)
    # The RECORD is unchanged. Only verify compares file contents.
    appended(f"{SITE}/torch/__init__.py")(venv)
    (venv / "notes.txt").write_text("mine")

    assert is_proven(venv)


def test_next_container_of_a_host_uses_the_verification(venv, monkeypatch):
    stamp = replace(create_stamp(venv), verdict=PASSED, driver=MACHINE.driver)
    state.store_stamp(stamp, venv, MARKER.id, MACHINE)
    fresh = str(venv / "fresh")
    with monkeypatch.context() as restarted:
        restarted.setattr(state, "read_boot_id", lambda: "another boot")
        assert is_proven(venv)
        restarted.setenv("XDG_CACHE_HOME", fresh)
        assert not is_proven(venv)
    monkeypatch.setenv("XDG_CACHE_HOME", fresh)
    assert is_proven(venv)
    other = replace(MARKER, id="another")
    assert read_valid_stamp(venv, other, MACHINE) is None


def test_malformed_verification_stamp_is_ignored(venv):
    file = stamp_file(MARKER.id, MACHINE)
    believed = []
    for text in ("", "{}", "[]", '{"python": ""}', "[" * 100_000):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if is_proven(venv):
            believed.append(text)
    file.unlink()
    os.mkfifo(file)

    assert believed == []
    assert not is_proven(venv)


def test_verification_covers_only_its_gpus(venv):
    passed = {"status": "passed", "devices": [{"index": 0, "name": "NVIDIA L4"}]}
    record = replace(create_stamp(venv), verdict=passed)
    unproven = replace(record, verdict={**passed, "status": "unproven"})

    assert (record.covers([0]), record.covers([0, 1]), unproven.covers([0])) == (
        True,
        False,
        False,
    )


PLUG_IN = {
    "plugin-1.0.dist-info/entry_points.txt": "[torch.backends]\nplugin = plugin:go\n"
}
OTHERS: dict[str, tuple[str, dict[str, Any], object]] = {
    "others come and go": ("einops", {"cowsay": {}}, ()),
    "a program is another, and one is new": (
        "torchvision",
        {"torchvision": {"version": "2.0"}, "xformers": {"requires": ("torch",)}},
        ("torchvision", "xformers"),
    ),
    "another torch": ("torch", {"torch": {"version": "2.15.0"}}, None),
    "the same torch by another file": ("torch", {"torch": TORCH}, None),
    "another sympy": ("sympy", {"sympy": {"version": "2.0"}}, None),
    "another numpy": ("numpy", {"numpy": {"version": "3.0"}}, None),
    "a plug-in that torch loads": ("", {"plugin": {"files": PLUG_IN}}, None),
    "another of what Python imports at its start": (
        "starter",
        {"starter": {"version": "2.0", "files": STARTER}},
        None,
    ),
}
"""Removed and added packages, and modules to verify; None: everything."""


def test_unchanged_torch_keeps_its_verification(venv):
    record = proven(venv)
    wrong = {}
    for name, (goes, comes, expected) in OTHERS.items():
        new = venv.with_name(name)
        shutil.copytree(venv, new, symlinks=True, copy_function=os.link)
        for package in read_packages([new / SITE]):
            if package.name == goes:
                for file in package.read_record():
                    (new / SITE / file.path).unlink()
                package.record.rmdir()
        for arriving, facts in comes.items():
            put(new, arriving, **facts)
        stamp = create_stamp(new)
        tested = (
            stamp.find_new_programs(record) if stamp.has_same_torch(record) else None
        )
        if tested != expected:
            wrong[name] = tested

    assert wrong == {}


def test_group_writable_files_keep_the_verification(venv):
    usual = os.umask(0o002)
    try:
        proven(venv)
    finally:
        os.umask(usual)

    assert is_proven(venv)


@pytest.mark.parametrize("linked", ["lib", SITE])
def test_changed_package_behind_symlink_invalidates_verification(venv, linked):
    elsewhere = venv.with_name("elsewhere")
    (venv / linked).rename(elsewhere)
    (venv / linked).symlink_to(elsewhere)
    proven(venv)

    assert is_proven(venv)
    (venv / SITE / "new.pth").write_text("import os\n")
    assert not is_proven(venv)


def test_verification_keeps_only_checks_of_installed_packages():
    names = (
        "matmul",
        "torchvision-nms",
        "flash-attn-attention",
        "flash-attn-3-attention",
    )
    checks = [{"name": name} for name in names]
    verdict = {"devices": [{"index": 0, "name": "CPU", "checks": checks}]}

    [left] = update_programs(verdict, ["torchvision", "flash_attn"], tested=None)[
        "devices"
    ]

    assert left["checks"] == [checks[0], checks[3]]
    assert update_programs(verdict, [], tested=None) == verdict
