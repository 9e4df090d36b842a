"""People stand in a folder: what lies there is what is installed, by whichever command, and it is said."""

import pytest
import tomli

from tests.lab.driver import NO_GPU
from tests.lab.setuptools import make_setup_project, make_setuptools

LOCK = "pylock.cpu.toml"


@pytest.fixture
def workshop(workshop, play):
    play(NO_GPU)
    return workshop


def names(workshop):
    return {package["name"] for package in tomli.loads(workshop.lock(LOCK))["packages"]}


def write(workshop, name, text):
    (workshop.folder / name).write_text(text, "utf-8")


def projects(text):
    return [" ".join(line.split()) for line in text.splitlines() if line.startswith("Project")]


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
    assert projects(done.err) == [f"Project {counted}"]
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
    assert workshop.refusal("sync", exit_code=6)["code"] == "lock-stale"
    assert workshop.document("install")["data"]["lock"]["changes"]
    assert {"old-thing", "filelock"} <= names(workshop)
    assert (
        workshop.python("from importlib.metadata import requires; print(requires('old-thing'))")
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
def test_a_c_extension_is_built_by_the_real_setuptools(workshop, words):
    write(workshop, "setup.py", EXTENSION)
    write(workshop, "needs.txt", "cowsay\n")
    write(workshop, "fast_thing.c", C_MODULE)
    real = workshop.having(UV_DEFAULT_INDEX="")
    done = real.run("install", *words)
    assert done.status == 0, done.err
    assert "its build code runs now" in done.err
    assert "fast_thing" in real.python("import cowsay, fast_thing; print(fast_thing.__file__)")
    assert real.document("install")["data"]["environment"]["status"] == "none"
