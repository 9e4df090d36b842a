"""Packages that are built beside the torch that they import: checked before anything is fetched, and really built."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomli

from gpuinstall.base import process
from tests.lab.driver import NO_GPU, FakeDriver, FakeGpu
from tests.lab.projects import (
    commit,
    make_project,
    make_repository,
    make_sdist,
    make_silent_sdist,
)
from tests.lab.setuptools import make_setup_project, make_setuptools
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

A100 = FakeDriver((FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0"),))
TOOLS = ("setuptools", "wheel", "packaging", "psutil", "ninja", "einops")


@pytest.fixture
def workshop(stand_in, stand_in_folder, tmp_path, play):
    """A machine with an A100 and a C++ compiler, without nvcc."""
    play(A100)
    for tool in TOOLS:
        make_wheel(stand_in_folder / "simple", tool, "80.0")
    make_sdist(
        stand_in_folder / "simple",
        "flash-attn",
        "2.8.3",
        ["torch", "einops"],
        imports="import torch",
    )
    (tmp_path / "bin").mkdir()
    for name in ("git", "c++"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "/bin/true")
    folder = tmp_path / "project"
    folder.mkdir()
    variables = {
        **stand_in.environment(),
        "PATH": f"{tmp_path / 'bin'}:/bin",
        "CUDA_HOME": str(tmp_path / "no-toolkit"),
    }
    return Workshop(folder, tmp_path / "caches", variables)


@dataclass(frozen=True)
class Compiling:
    """A workshop in which each compilation leaves a line in a file."""

    workshop: Workshop
    file: Path

    def built(self, venv, torch="2.14.1", package="flash-attn", **more):
        """Install into an environment; return what its package was compiled beside and for."""
        own = {
            "GPUINSTALL_VENV": f"{venv}/.venv",
            "LAB_COMPILED": str(self.file),
            **more,
        }
        workshop = self.workshop.having(**own)
        requirement = flash(workshop) if package == "flash-attn" else package
        done = workshop.run(
            "install", "--only", f"torch=={torch}", requirement, "--backend", "cu126"
        )
        assert done.status == 0, done.err
        python = workshop.folder / venv / ".venv" / "bin" / "python"
        return process.run(
            [python, "-c", f"import {package.replace('-', '_')} as it; print(it.SAID)"]
        ).out.strip()

    @property
    def log(self):
        """A line for each compilation."""
        return self.file.read_text("utf-8").splitlines()


def flash(workshop):
    """Return a requirement by address: a named extension is never compiled."""
    files = workshop.variables["UV_DEFAULT_INDEX"].replace("/simple", "/files")
    return f"flash-attn @ {files}/flash_attn-2.8.3.tar.gz"


def with_nvcc(workshop, release):
    """Put an nvcc on PATH that says its release."""
    script = workshop.caches.parent / "bin" / "nvcc"
    script.write_text(
        f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n",
        "utf-8",
    )
    script.chmod(0o755)
    return workshop.having(CUDA_HOME="")


def test_without_a_compiler_for_gpus_it_is_refused_before_anything_is_fetched(
    workshop, stand_in
):
    error = workshop.refusal(
        "install", "torch==2.14.1", flash(workshop), "--backend", "cu126", exit_code=3
    )
    assert error["code"] == "toolkit-missing"
    assert "no nvcc" in error["message"]
    assert "cuda-toolkit-12-6" in error["hint"]
    assert set(stand_in.sent()) == {"flash_attn-2.8.3.tar.gz"}
    assert not (workshop.folder / ".venv").exists()


def test_an_extension_without_a_prebuilt_file_is_refused_with_the_command_that_compiles_it(
    workshop, stand_in
):
    error = workshop.refusal(
        "install", "torch==2.14.1", "flash-attn", "--backend", "cu126", exit_code=3
    )
    assert error["code"] == "no-prebuilt-extension"
    command = "gpuinstall run python -m pip install --no-build-isolation flash-attn"
    assert error["hint"].startswith(
        f"{command}   # compiles it, with nvcc of CUDA 12.6, a C++ "
    )
    assert "9 GB of memory for each job" in error["hint"]
    assert stand_in.sent() == {}


@pytest.mark.heavy
def test_it_is_built_with_the_torch_that_is_installed_and_with_so_many_jobs(
    workshop,
):
    workshop = with_nvcc(workshop, "12.4")
    workshop = workshop.having(MAX_JOBS="3")
    done = workshop.run(
        "install", "torch==2.14.1", flash(workshop), "--backend", "cu126"
    )
    assert done.status == 0, done.err
    assert (
        "flash-attn 2.8.3 is built from an archive, with nvcc of CUDA 12.6" in done.err
    )
    assert "9 GB of memory for each job (MAX_JOBS)" in done.err
    assert (
        workshop.python("import flash_attn; print(flash_attn.SAID.split()[0])")
        == "MAX_JOBS=3"
    )
    assert all(
        f'name = "{tool}"' in workshop.lock("pylock.cu126.toml") for tool in TOOLS
    )
    assert workshop.document("sync")["data"]["environment"]["status"] == "none"


@pytest.fixture
def compiling(workshop, stand_in_folder, tmp_path):
    """The same with nvcc, and a flash-attn that is really compiled."""
    make_sdist(
        stand_in_folder / "simple",
        "flash-attn",
        "2.8.3",
        ["torch", "einops"],
        compiled=True,
    )
    return Compiling(with_nvcc(workshop, "12.4"), tmp_path / "compiled")


@pytest.mark.heavy
def test_another_torch_and_other_gpus_are_compiled_for_anew(compiling):
    assert compiling.built("one") == "torch 2.14.1+cu126 for 8.0"
    assert compiling.built("two", torch="2.13.0") == "torch 2.13.0+cu126 for 8.0"
    assert (
        compiling.built("three", TORCH_CUDA_ARCH_LIST="8.6")
        == "torch 2.14.1+cu126 for 8.6"
    )
    assert compiling.built("four") == "torch 2.14.1+cu126 for 8.0"
    assert len(compiling.log) == 3


@pytest.mark.heavy
def test_a_package_that_nobody_knows_is_compiled_with_the_torch_of_its_environment(
    compiling, stand_in_folder
):
    make_sdist(
        stand_in_folder / "simple",
        "odd-ext",
        "1.0",
        ["torch"],
        compiled=True,
        built_with=["torch"],
    )
    assert compiling.built("one", package="odd-ext") == "torch 2.14.1+cu126 for no GPU"
    assert (
        compiling.built("two", torch="2.13.0", package="odd-ext")
        == "torch 2.13.0+cu126 for no GPU"
    )
    assert (
        compiling.built("three", package="odd-ext") == "torch 2.14.1+cu126 for no GPU"
    )
    assert len(compiling.log) == 2


def test_a_lock_for_other_machines_says_what_will_be_built_and_checks_nothing_here(
    workshop,
):
    done = workshop.run("lock", "torch==2.14.1", flash(workshop), "--target", "cu126")
    assert done.status == 0, done.err
    assert "flash-attn 2.8.3 is built from an archive" in done.err
    refused = workshop.refusal("sync", exit_code=3)
    assert refused["code"] == "toolkit-missing"


def test_a_setup_that_imports_torch_and_is_not_known_is_explained(workshop, tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "setup.py").write_text("import torch\n", "utf-8")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n',
        "utf-8",
    )
    (folder / "b.py").write_text("import torch\n", "utf-8")
    error = workshop.refusal("lock", "torch", "odd @ ../odd", exit_code=4)
    assert error["code"] == "build-needs-torch"
    without, build = error["hint"].splitlines()
    assert without == "Run it again without odd"
    assert "--no-build-isolation odd" in build


ASKED = ("plain", "--backend", "cpu")


@pytest.fixture
def ran(tmp_path):
    """What the code of the packages writes to."""
    return tmp_path / "ran"


@pytest.fixture
def odd(workshop, stand_in_folder, ran, play):
    """plain needs strange, which needs odd; those two have no wheel, and newer has one of its old version alone."""
    play(NO_GPU)
    served = stand_in_folder / "simple"
    make_wheel(served, "plain", "1.0", requires=["strange"])
    make_silent_sdist(served, "strange", "1.0", ["odd"], ran=ran)
    make_silent_sdist(served, "odd", "1.0", ran=ran)
    make_wheel(served, "newer", "1.0")
    make_silent_sdist(served, "newer", "2.0", ran=ran)
    return workshop


@pytest.mark.parametrize(
    "command", [("lock", "-q", *ASKED), ("plan", "--live", *ASKED)]
)
def test_each_is_named_before_its_code_runs(odd, ran, command):
    with odd.start(*command) as running:
        seen: list[str] = []
        for line in running.stderr or ():
            seen += [line.split()[1]] if "its build code runs" in line else []
            assert set(_lines(ran)) <= {f"{name}-1.0" for name in seen}, line
    assert running.returncode == 0
    assert seen == ["strange", "odd"]
    assert set(_lines(ran)) == {"strange-1.0", "odd-1.0"}


@pytest.mark.heavy
@pytest.mark.parametrize("words", [(), ("--only-binary",)])
def test_a_package_without_a_name_is_built_for_it_once_announced(
    odd, stand_in_folder, ran, words
):
    make_setuptools(stand_in_folder / "simple")
    make_setup_project(odd.folder / "the first", "first", "filelock", ran=ran)
    make_setup_project(odd.folder / "an other", "second", "typing-extensions", ran=ran)
    make_setup_project(odd.folder / "repository", "third", "numpy", ran=ran)
    commit(odd.folder / "repository")
    repository = f"git+file://{odd.folder}/repository"
    done = odd.run(
        "lock",
        "-e",
        "./the first",
        "./an other",
        repository,
        "--backend",
        "cpu",
        *words,
    )
    assert done.status == 0, done.err
    announced = re.findall("^Code +(.+) has no metadata", done.err, re.MULTILINE)
    assert announced == [
        f"{odd.folder}/an other",
        repository,
        f"{odd.folder}/the first",
    ], done.err
    lock = tomli.loads(odd.lock("pylock.cpu.toml"))
    packages = {package["name"]: package for package in lock["packages"]}
    assert packages.keys() >= {
        "first",
        "second",
        "third",
        "filelock",
        "typing-extensions",
        "numpy",
    }
    assert packages["first"]["directory"] == {"path": "the first", "editable": True}
    assert packages["second"]["directory"]["path"] == "an other"
    assert odd.document("sync")["data"]["environment"]["status"] == "built"


@pytest.mark.heavy
def test_what_is_built_with_torch_has_a_real_one_and_the_python_of_the_lock(
    odd, stand_in_folder, ran
):
    make_silent_sdist(
        stand_in_folder / "simple",
        "restorer",
        "1.0",
        ["torch"],
        ran=ran,
        built_with=["torch"],
    )
    for python in ("3.10", "3.11"):
        done = odd.run(
            "lock", "restorer", "--backend", "cpu", "--python", python, "--upgrade"
        )
        assert done.status == 0, done.err
        assert ran.read_text().splitlines()[-1] == f"restorer-1.0 {python}"
        shutil.rmtree(odd.caches / "uv")


def test_only_binary_refuses_it_and_nothing_runs(odd, ran):
    error = odd.refusal("lock", *ASKED, "--only-binary", exit_code=3)
    assert error["code"] == "only-binary"
    assert "strange" in error["message"]
    assert not ran.exists()


@pytest.mark.heavy
def test_only_binary_is_a_setting_too(odd, ran):
    (odd.folder / "pyproject.toml").write_text(
        "[tool.gpuinstall]\nonly-binary = true\n", "utf-8"
    )
    for command in (("install", *ASKED), ("plan", "--live", *ASKED), ("lock", *ASKED)):
        assert odd.refusal(*command, exit_code=3)["code"] == "only-binary"
    assert not ran.exists()


def test_only_binary_takes_the_newest_that_has_a_wheel(odd, ran):
    assert odd.run("lock", "newer", "--backend", "cpu", "--only-binary").status == 0
    assert 'name = "newer"\nversion = "1.0"' in odd.lock("pylock.cpu.toml")
    assert not ran.exists()


def test_only_binary_does_not_mean_what_is_asked_for_by_its_place(odd, ran):
    make_project(odd.folder / "mine", "mine", "1.0")
    done = odd.run("lock", "./mine", "--backend", "cpu", "--only-binary")
    assert done.status == 0, done.err
    assert not ran.exists()


@pytest.mark.heavy
def test_a_lock_with_a_source_is_not_synced_where_only_wheels_are_wanted(odd, ran):
    assert odd.run("lock", *ASKED).status == 0
    ran.unlink()
    error = odd.refusal("sync", "--only-binary", exit_code=3)
    assert (error["code"], "odd 1.0" in error["message"]) == ("only-binary", True)
    assert not ran.exists()


def _lines(file):
    """The packages whose code ran."""
    return (
        [line.split()[0] for line in file.read_text("utf-8").splitlines()]
        if file.exists()
        else []
    )


@pytest.mark.heavy
def test_a_project_whose_build_requires_torch_is_locked(odd, stand_in_folder):
    make_setuptools(stand_in_folder / "simple")
    make_setup_project(odd.folder, "thing", "numpy")
    table = '[build-system]\nrequires = ["setuptools", "torch"]\nbuild-backend = "setuptools.build_meta"\n'
    (odd.folder / "pyproject.toml").write_text(table, "utf-8")
    done = odd.run("lock", "--backend", "cpu")
    assert done.status == 0, done.err
    lock = tomli.loads(odd.lock("pylock.cpu.toml"))
    assert {"thing", "torch", "numpy"} <= {
        package["name"] for package in lock["packages"]
    }


NEEDS_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")


@pytest.fixture
def ours(stand_in, tmp_path, play):
    play(NO_GPU)
    return Workshop(
        make_project(tmp_path / "our-thing", "our-thing", requires=["cowsay"]),
        tmp_path / "caches",
        stand_in.environment(),
    )


def packages(ours, name="pylock.cpu.toml"):
    return {
        package["name"]: package for package in tomli.loads(ours.lock(name))["packages"]
    }


@pytest.mark.heavy
@NEEDS_GIT
@pytest.mark.parametrize(
    "form", ["tool @ git+file://{}", "git+file://{}", "git+file://{}@main#egg=tool"]
)
def test_a_branch_that_moves_is_pinned_to_its_commit(ours, tmp_path, form):
    (ours.folder / "pyproject.toml").unlink()
    first = make_repository(tmp_path / "tool", "tool")
    done = ours.run("lock", "torch", form.format(tmp_path / "tool"))
    assert done.status == 0, done.err
    assert packages(ours)["tool"]["vcs"]["commit-id"] == first
    assert "no hash pins tool @ git+file://" in done.out
    (tmp_path / "tool" / "tool.py").write_text("HERE = 2\n", "utf-8")
    commit(tmp_path / "tool")
    ours.document("lock", "check", "torch", form.format(tmp_path / "tool"))
    ours.document("sync")
    assert ours.python("import tool; print(tool.SAID.count('='))") == "5"


LOCK = "pylock.cpu.toml"


@pytest.fixture
def ordinary(workshop, play):
    play(NO_GPU)
    return workshop


def names(ordinary):
    return {package["name"] for package in tomli.loads(ordinary.lock(LOCK))["packages"]}


def write(ordinary, name, text):
    (ordinary.folder / name).write_text(text, "utf-8")


def projects(text):
    return [
        " ".join(line.split())
        for line in text.splitlines()
        if line.startswith("Project")
    ]


@pytest.mark.heavy
def test_a_project_of_setup_py_is_installed_with_the_file_beside_it(
    ordinary, stand_in_folder
):
    make_setuptools(stand_in_folder / "simple")
    make_setup_project(ordinary.folder, "old-thing", "cowsay")
    write(ordinary, "requirements.txt", "numpy\n")
    write(ordinary, "environment-gpu.yml", "dependencies:\n- pip:\n  - rich\n")
    assert (
        "the request was not resolved: plan --live resolves it"
        in ordinary.run("plan").err
    )
    done = ordinary.run("install")
    assert done.status == 0, done.err
    counted = "requirements.txt: 1 requirement; setup.py: the project itself, editable"
    assert projects(done.err) == [f"Project {counted}"]
    module = ordinary.folder / "old_thing.py"
    assert ordinary.python(
        "import old_thing, cowsay, numpy; print(old_thing.__file__)"
    ) == str(module)
    assert ordinary.document("install")["data"]["environment"]["status"] == "none"
    assert ordinary.document("lock", "check", "--offline")["status"] == "success"
    make_setup_project(ordinary.folder, "old-thing", "filelock")
    stale = ordinary.document("lock", "check", "--offline", exit_code=6)["data"][
        "locks"
    ][0]
    assert [reason["code"] for reason in stale["reasons"]] == ["inputs-changed"]
    assert ordinary.refusal("sync", exit_code=6)["code"] == "lock-stale"
    assert ordinary.document("install")["data"]["lock"]["changes"]
    assert {"old-thing", "filelock"} <= names(ordinary)
    assert (
        ordinary.python(
            "from importlib.metadata import requires; print(requires('old-thing'))"
        )
        == "['filelock']"
    )


EXTENSION = """\
from setuptools import Extension, setup
setup(
    name="fast-thing", version="1", install_requires=[open("needs.txt").read().strip()], py_modules=[],
    ext_modules=[Extension("fast_thing", ["fast_thing.c"])],
)
"""
C_MODULE = """\
#include <Python.h>
static PyMethodDef methods[] = {{NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "fast_thing", NULL, -1, methods};
PyMODINIT_FUNC PyInit_fast_thing(void) { return PyModule_Create(&module); }
"""


@pytest.mark.network
@pytest.mark.parametrize("words", [(), ("-e", "."), (".",)], ids=" ".join)
def test_a_c_extension_is_built_by_the_real_setuptools(ordinary, words):
    write(ordinary, "setup.py", EXTENSION)
    write(ordinary, "needs.txt", "cowsay\n")
    write(ordinary, "fast_thing.c", C_MODULE)
    real = ordinary.having(UV_DEFAULT_INDEX="")
    done = real.run("install", *words)
    assert done.status == 0, done.err
    assert "its build code runs now" in done.err
    assert "fast_thing" in real.python(
        "import cowsay, fast_thing; print(fast_thing.__file__)"
    )
    assert real.document("install")["data"]["environment"]["status"] == "none"
