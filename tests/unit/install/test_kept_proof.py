"""When the proof of an environment holds for a changed one: never where anything that it covers has moved."""

import os
import shutil
import sys

import pytest

from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.values import replace
from gpuinstall.base.versions import DriverVersion
from gpuinstall.environments.environment import Marker
from gpuinstall.environments.packages import read_packages
from gpuinstall.install.state import stamp_file, standing_stamp
from gpuinstall.verify.cover import take_stamp
from gpuinstall.verify.verdict import with_programs
from tests.lab.environments import put_package

GPU = Gpu(index=0, name="NVIDIA L4", uuid="GPU-1")
MACHINE = Machine(
    "linux",
    "x86_64",
    "glibc",
    "2.36",
    gpus=(GPU,),
    driver=Driver(DriverVersion.parse("570.86.10")),
)
MARKER = Marker(
    "an-id", "pylock.cu126.toml", "0" * 64, "3.12", "2.14.1", "cu126", "here", {}
)
PASSED = {"status": "passed", "devices": []}
SITE = "lib/python3.12/site-packages"


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """An environment with torch, what it requires, torchvision, and a package that torch knows nothing of."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    venv = tmp_path / "old"
    make_skeleton(venv)
    site = venv / SITE
    put_package(
        site,
        "torch",
        {"torch/__init__.py": "1", "torch/lib/libtorch.so": "22"},
        requires=("sympy",),
    )
    put_package(site, "sympy", {"sympy/__init__.py": "333"})
    put_package(site, "numpy", {"numpy/__init__.py": "4444"})
    put_package(
        site,
        "torchvision",
        {"torchvision/__init__.py": "5"},
        requires=("torch", "pillow"),
    )
    put_package(site, "pillow", {"PIL/__init__.py": "6"})
    put_package(site, "einops", {"einops/__init__.py": "7"})
    put_package(site, "starter", {"starter.py": "8", "starter.pth": "import starter\n"})
    return venv


def make_skeleton(venv):
    (venv / SITE).mkdir(parents=True, exist_ok=True)
    (venv / "bin").mkdir(exist_ok=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "pyvenv.cfg").write_text("include-system-site-packages = false\n")


def proven(venv):
    return replace(take_stamp(venv), verdict=PASSED)


def cloned(venv, *left_out):
    """The same environment beside it, by links, without some packages."""
    new = venv.with_name("new")
    shutil.copytree(venv, new, symlinks=True, copy_function=os.link)
    for package in read_packages([new / SITE]):
        if package.name in left_out:
            for file in package.files:
                (new / SITE / file.path).unlink()
            shutil.rmtree(package.record)
    return new


def test_a_proof_holds_on_the_same_machine_alone(venv):
    proven(venv).write(stamp_file(MARKER.id, MACHINE))
    others = {
        "another GPU": replace(MACHINE, gpus=(replace(GPU, uuid="GPU-2"),)),
        "another driver": replace(
            MACHINE, driver=Driver(DriverVersion.parse("580.95.05"))
        ),
        "no GPU": replace(MACHINE, gpus=()),
    }

    assert standing_stamp(venv, MARKER, MACHINE) is not None
    assert [
        name
        for name, machine in others.items()
        if standing_stamp(venv, MARKER, machine)
    ] == []


def appended(path):
    def change(venv):
        with (venv / path).open("a") as file:
            file.write("x")

    return change


def rewritten(path):
    """Another file of the same size and time, as ``pip install --force-reinstall`` leaves one."""

    def change(venv):
        file = venv / path
        status = file.stat()
        text = file.read_text()
        file.rename(file.with_suffix(".old"))
        file.write_text(text)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    return change


def removed(path):
    return lambda venv: (venv / path).unlink()


def put_startup_package(venv):
    package = venv / SITE / "sitecustomize"
    package.mkdir()
    (package / "__init__.py").touch()


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
    "what Python runs at its start": lambda venv: (venv / SITE / "new.pth").write_text(
        "import os\n"
    ),
    "a sitecustomize": lambda venv: (venv / SITE / "sitecustomize.py").write_text(""),
    "a sitecustomize that is a package": put_startup_package,
    "a module that Python imports at its start": appended(
        f"{SITE}/starter-1.0.dist-info/RECORD"
    ),
    "the system's packages": lambda venv: (venv / "pyvenv.cfg").write_text(
        "include-system-site-packages = true\n"
    ),
    "another Python": another_python,
}


def test_no_changed_file_of_what_was_proven_keeps_the_proof(venv):
    kept = []
    for name, change in CHANGES.items():
        stamp_file(MARKER.id, MACHINE).unlink(missing_ok=True)
        proven(venv).write(stamp_file(MARKER.id, MACHINE))
        before = {
            path: path.read_bytes()
            for path in venv.rglob("*")
            if path.is_file() and not path.is_symlink()
        }
        change(venv)
        if standing_stamp(venv, MARKER, MACHINE):
            kept.append(name)
        for path in venv.rglob("*.pth"):
            path.unlink()
        shutil.rmtree(venv / SITE / "sitecustomize", ignore_errors=True)
        for path, content in before.items():
            path.write_bytes(content)
        (venv / "bin" / "python").unlink()
        (venv / "bin" / "python").symlink_to(sys.executable)

    assert kept == []


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"])
def test_a_variable_that_changes_what_is_loaded_ends_the_proof(venv, monkeypatch, name):
    proven(venv).write(stamp_file(MARKER.id, MACHINE))

    monkeypatch.setenv(name, "/opt/other")

    assert standing_stamp(venv, MARKER, MACHINE) is None


def test_what_no_proof_covers_may_change(venv):
    proven(venv).write(stamp_file(MARKER.id, MACHINE))

    appended(f"{SITE}/einops-1.0.dist-info/RECORD")(venv)
    # Behind its RECORD: verify compares the files themselves.
    appended(f"{SITE}/torch/__init__.py")(venv)
    (venv / "notes.txt").write_text("mine")

    assert standing_stamp(venv, MARKER, MACHINE) is not None


def test_a_record_that_is_none_of_ours_proves_nothing(venv):
    file = stamp_file(MARKER.id, MACHINE)
    believed = []
    for text in ("", "{}", "[]", '{"python": ""}', "[" * 100_000):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if standing_stamp(venv, MARKER, MACHINE):
            believed.append(text)
    file.unlink()
    os.mkfifo(file)

    assert believed == []
    assert standing_stamp(venv, MARKER, MACHINE) is None


def test_a_proof_of_one_gpu_is_none_of_two(venv):
    passed = {"status": "passed", "devices": [{"index": 0, "name": "NVIDIA L4"}]}
    record = replace(take_stamp(venv), verdict=passed)
    unproven = replace(record, verdict={**passed, "status": "unproven"})

    assert (record.proves([0]), record.proves([0, 1]), unproven.proves([0])) == (
        True,
        False,
        False,
    )


def test_the_proof_is_kept_whatever_comes_and_goes_beside_torch(venv):
    record = proven(venv)
    new = cloned(venv, "einops")
    put_package(new / SITE, "cowsay", {"cowsay/__init__.py": "8"})

    stamp = take_stamp(new)

    assert stamp.keeps(record)
    assert stamp.new_programs(record) == ()


def test_with_another_torch_or_numpy_it_is_not_kept(venv):
    record = proven(venv)
    kept = []
    for name, version in {"torch": "2.15.0", "sympy": "2.0", "numpy": "3.0"}.items():
        new = cloned(venv, name)
        put_package(new / SITE, name, {f"{name}/__init__.py": "1"}, version=version)
        if take_stamp(new).keeps(record):
            kept.append(name)
        new.rename(venv.with_name(f"new with another {name}"))

    assert kept == []


def test_another_file_of_the_same_version_of_torch_ends_the_proof(venv):
    record = proven(venv)
    new = cloned(venv, "torch")
    files = {"torch/__init__.py": "1", "torch/lib/libtorch.so": "22"}
    put_package(new / SITE, "torch", files, requires=("sympy",))

    assert not take_stamp(new).keeps(record)


def test_a_plug_in_that_torch_loads_ends_the_proof(venv):
    record = proven(venv)
    new = cloned(venv)
    files = {
        "plugin/__init__.py": "",
        "plugin-1.0.dist-info/entry_points.txt": "[torch.backends]\nplugin = plugin:go\n",
    }
    put_package(new / SITE, "plugin", files)

    assert not take_stamp(new).keeps(record)


def test_another_version_of_what_python_imports_at_its_start_does_not(venv):
    record = proven(venv)
    new = cloned(venv, "starter")
    files = {"starter.py": "9", "starter.pth": "import starter\n"}
    put_package(new / SITE, "starter", files, version="2.0")

    assert not take_stamp(new).keeps(record)


def test_a_proof_is_kept_where_a_group_shares_new_files(venv):
    usual = os.umask(0o002)
    try:
        proven(venv).write(stamp_file(MARKER.id, MACHINE))
    finally:
        os.umask(usual)

    assert standing_stamp(venv, MARKER, MACHINE) is not None


@pytest.mark.parametrize("linked", ["lib", SITE])
def test_packages_on_another_disk_are_covered(venv, linked):
    elsewhere = venv.with_name("elsewhere")
    (venv / linked).rename(elsewhere)
    (venv / linked).symlink_to(elsewhere)
    proven(venv).write(stamp_file(MARKER.id, MACHINE))

    assert standing_stamp(venv, MARKER, MACHINE) is not None
    (venv / SITE / "new.pth").write_text("import os\n")
    assert standing_stamp(venv, MARKER, MACHINE) is None


def test_a_program_that_is_new_or_changed_is_tested_by_itself(venv):
    record = proven(venv)
    new = cloned(venv, "torchvision")
    put_package(
        new / SITE,
        "torchvision",
        {"torchvision/__init__.py": "5"},
        version="2.0",
        requires=("torch",),
    )
    put_package(
        new / SITE, "xformers", {"xformers/__init__.py": ""}, requires=("torch",)
    )

    stamp = take_stamp(new)

    assert stamp.keeps(record)
    assert stamp.new_programs(record) == ("torchvision", "xformers")


def test_a_verdict_has_the_checks_of_the_programs_that_are_there():
    names = (
        "matmul",
        "torchvision-nms",
        "flash-attn-attention",
        "flash-attn-3-attention",
    )
    checks = [{"name": name, "status": "passed"} for name in names]
    verdict = {
        "status": "passed",
        "devices": [{"index": 0, "name": "CPU", "checks": checks}],
    }

    left = with_programs(verdict, ["torchvision", "flash_attn"])

    assert [check["name"] for check in left["devices"][0]["checks"]] == [
        "matmul",
        "flash-attn-3-attention",
    ]
    assert with_programs(verdict, []) == verdict
