"""People stand in a folder: what lies there is what is installed, by whichever command, and it is said."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import tomli

from gpuinstall.base import process, uv
from tests.frozen import GPUINSTALL
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.fixtures import Play
from tests.lab.index import StandInIndex
from tests.lab.projects import make_project
from tests.lab.setuptools import make_setup_project, make_setuptools
from tests.lab.workshop import Workshop

NOTHING = FakeDriver(nvml_missing=True, cu_missing=True)
LOCK = "pylock.cpu.toml"
PROJECT = '[project]\nname = "thing"\nversion = "1"\ndependencies = ["numpy"]\n[dependency-groups]\ndev = ["cowsay"]\n'

POETRY = """\
[tool.poetry]
package-mode = false
[tool.poetry.dependencies]
python = "^3.9"
numpy = "^2.0"
[tool.poetry.group.dev.dependencies]
cowsay = "*"
"""


@pytest.fixture
def workshop(stand_in: StandInIndex, tmp_path: Path, play: Play) -> Workshop:
    play(NOTHING)
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


def names(workshop: Workshop) -> set[str]:
    return {package["name"] for package in tomli.loads(workshop.lock(LOCK))["packages"]}


def write(workshop: Workshop, name: str, text: str):
    (workshop.folder / name).write_text(text, encoding="utf-8")


def projects(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.startswith("Project")]


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        pytest.param(
            "requirements.txt",
            "numpy\ncowsay\n",
            "Project requirements.txt: 2 requirements",
            marks=pytest.mark.heavy,
        ),
        pytest.param(
            "pyproject.toml",
            PROJECT,
            "Project pyproject.toml: 2 requirements and group dev",
            marks=pytest.mark.heavy,
        ),
        (
            "pyproject.toml",
            POETRY,
            "Project pyproject.toml: 2 requirements",
        ),
        pytest.param(
            "environment.yml",
            "dependencies:\n  - pip:\n    - numpy\n    - cowsay\n",
            "Project environment.yml: 2 requirements",
            marks=pytest.mark.heavy,
        ),
    ],
)
def test_what_lies_in_the_folder_is_installed_and_said_before_anything_happens(
    workshop, file, text, line
):
    write(workshop, file, text)
    planned = workshop.run("plan")
    assert projects(planned.err) == [line]
    assert "cowsay" in planned.out
    locked = workshop.run("lock")
    assert (locked.status, projects(locked.err)) == (0, [line])
    held = names(workshop)
    assert held >= {"torch", "numpy", "cowsay"}
    done = workshop.run("install")
    assert (done.status, projects(done.err)) == (0, [line])
    assert names(workshop) == held
    assert workshop.python("import torch, numpy, cowsay; print('all')") == "all"


@pytest.mark.heavy
def test_the_first_command_of_all_takes_the_file_too(workshop):
    """``bootstrap.py`` ends in ``gpuinstall install``: the very words it starts."""
    write(workshop, "requirements.txt", "cowsay\n")
    done = process.run([*GPUINSTALL, "install"], env=workshop.environment, cwd=workshop.folder)
    assert done.ok, done.err
    assert "cowsay" in names(workshop)


@pytest.mark.heavy
def test_doctor_calls_no_environment_healthy_that_lacks_what_the_file_asks_for(
    workshop,
):
    write(workshop, "requirements.txt", "numpy\n")
    workshop.document("install", "--only", "torch")
    assert "cowsay" not in names(workshop)
    findings = {
        one["code"]: one["title"] for one in workshop.document("doctor")["data"]["findings"]
    }
    assert "numpy is not installed" in findings["request-unmet"]


@pytest.mark.heavy
def test_a_line_that_comes_or_goes_in_the_file_comes_and_goes(workshop):
    write(workshop, "requirements.txt", "numpy\ncowsay\n")
    workshop.document("lock")
    write(workshop, "requirements.txt", "numpy\n")
    checked = workshop.document("lock", "check", "--offline", exit_code=6)["data"]["locks"][0]
    assert checked["reasons"][0]["code"] == "inputs-changed"
    workshop.document("lock", "torch<2.15")
    assert "cowsay" not in names(workshop)
    workshop.document("lock")
    assert tomli.loads(workshop.lock(LOCK))["tool"]["gpuinstall"]["inputs"] == [
        "numpy",
        "torch<2.15",
    ]
    error = workshop.document("remove", "numpy", exit_code=2)["errors"][0]
    assert (error["code"], "-r" in error["hint"]) == ("requested-elsewhere", False)


def test_a_project_that_is_a_package_is_installed_where_it_lies(workshop):
    make_project(workshop.folder, "our-thing", requires=["cowsay"])
    done = workshop.run("install")
    assert done.status == 0, done.err
    assert projects(done.err) == [
        "Project pyproject.toml: 1 requirement; our-thing itself, editable"
    ]
    assert workshop.python("import our_thing, cowsay; print(our_thing.__file__)") == str(
        workshop.folder / "our_thing.py"
    )
    assert workshop.document("install")["data"]["environment"]["status"] == "none"
    assert workshop.document("lock", "check", "--offline")["status"] == "success"


@pytest.mark.heavy
def test_a_project_of_setup_py_is_installed_with_the_file_beside_it(workshop, stand_in_folder):
    make_setuptools(stand_in_folder / "simple")
    make_setup_project(workshop.folder, "old-thing", "cowsay")
    write(workshop, "requirements.txt", "numpy\n")
    write(workshop, "environment-gpu.yml", "dependencies:\n- pip:\n  - rich\n")
    assert "the request was not resolved: plan --live resolves it" in workshop.run("plan").err
    done = workshop.run("install")
    assert done.status == 0, done.err
    counted = "requirements.txt: 1 requirement; setup.py: the project itself, editable"
    uncounted = "environment-gpu.yml does not count (-r environment-gpu.yml adds it)"
    assert projects(done.err) == [f"Project {counted}; {uncounted}"]
    module = workshop.folder / "old_thing.py"
    assert workshop.python("import old_thing, cowsay, numpy; print(old_thing.__file__)") == str(
        module
    )
    assert workshop.document("install")["data"]["environment"]["status"] == "none"
    assert workshop.document("lock", "check", "--offline")["status"] == "success"
    assert "request-unmet" not in workshop.run("doctor").out
    make_setup_project(workshop.folder, "old-thing", "filelock")
    stale = workshop.document("lock", "check", "--offline", exit_code=6)["data"]["locks"][0]
    assert [reason["code"] for reason in stale["reasons"]] == ["inputs-changed"]
    assert workshop.document("sync", exit_code=6)["errors"][0]["code"] == "lock-stale"
    assert workshop.document("install")["data"]["lock"]["changes"]
    assert {"old-thing", "filelock"} <= names(workshop)
    assert (
        workshop.python("from importlib.metadata import requires; print(requires('old-thing'))")
        == "['filelock']"
    )


def test_an_environment_of_conda_is_a_request(workshop, play):
    play(FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020))
    packages = (
        "python=3.11",
        "pytorch=2.14",
        "pytorch-cuda=11.8",
        "torchvision",
        "numpy",
        "cudnn",
        "gcc=11",
    )
    write(
        workshop,
        "environment.yml",
        "dependencies:\n" + "".join(f"- {package}\n" for package in packages),
    )
    done = workshop.run("lock")
    assert done.status == 0, done.err
    assert projects(done.err) == ["Project environment.yml: 3 requirements"]
    assert (
        " ".join(done.err.split()).count(
            "no wheel is known of gcc=11; if needed: conda install gcc=11"
        )
        == 1
    )
    assert (
        " ".join(done.err.split()).count("cu118 is preferred by the request, but it has no build")
        == 1
    )
    lock = tomli.loads(workshop.lock("pylock.cu126.toml"))
    assert lock["tool"]["gpuinstall"]["inputs"] == ["torch==2.14.*", "torchvision", "numpy"]
    assert lock["requires-python"] == "==3.11.*"
    assert workshop.document("lock", "check", "--offline")["status"] == "success"


def test_plan_reads_what_was_asked_for_before(workshop):
    workshop.document("lock", "torch==2.13.0", "numpy")
    assert workshop.document("plan")["data"]["build"]["torch"] == "2.13.0"
    shutil.rmtree(workshop.folder)
    workshop.folder.mkdir()
    assert workshop.document("plan")["data"]["build"]["torch"] != "2.13.0"


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["pyproject.toml", "environment.yml", "pylock.theirs.toml"])
def test_a_file_of_another_form_is_named_with_r(workshop, name):
    forms = {
        "pyproject.toml": PROJECT,
        "environment.yml": "dependencies:\n- pip:\n  - numpy\n",
        "pylock.theirs.toml": '[[packages]]\nname = "numpy"\nversion = "2.3.4"\n',
    }
    other = workshop.folder / "there"
    other.mkdir()
    (other / name).write_text(forms[name], encoding="utf-8")
    workshop.document("lock", "-r", f"there/{name}")
    assert "numpy" in names(workshop)
    assert workshop.document("lock", "check", "--offline")["status"] == "success"


@pytest.mark.heavy
def test_the_active_environment_is_named_with_the_line_that_means_it(workshop):
    theirs = workshop.folder / "theirs"
    made = process.run([uv.uv(), "venv", "--no-project", "--python", sys.executable, theirs])
    assert made.ok, made.err
    active = Workshop(
        workshop.folder, workshop.caches, {**workshop.variables, "VIRTUAL_ENV": str(theirs)}
    )
    lines = {
        "verify": f"gpuinstall verify --venv {theirs}",
        "doctor": f"gpuinstall doctor --venv {theirs}",
        "install": f"gpuinstall install --into --venv {theirs}",
    }
    said = {command: " ".join(active.run(command).err.split()) for command in lines}
    assert {
        command
        for command, line in lines.items()
        if f"for the active one: {line}" not in said[command]
    } == set()
    assert f"do gpuinstall install # makes one {lines['verify']} #" in said["verify"]
    into = active.run(*lines["install"].split()[1:])
    assert into.status == 0, into.err
    assert "for the active one" not in into.err
    assert active.run(*lines["verify"].split()[1:]).status == 0


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
def test_a_c_extension_is_built_by_the_real_setuptools(workshop, words):
    write(workshop, "setup.py", EXTENSION)
    write(workshop, "needs.txt", "cowsay\n")
    write(workshop, "fast_thing.c", C_MODULE)
    real = Workshop(
        workshop.folder, workshop.caches, {**workshop.variables, "UV_DEFAULT_INDEX": ""}
    )
    done = real.run("install", *words)
    assert done.status == 0, done.err
    assert "its build code runs now" in done.err
    assert "fast_thing" in real.python("import cowsay, fast_thing; print(fast_thing.__file__)")
    assert real.document("install")["data"]["environment"]["status"] == "none"
