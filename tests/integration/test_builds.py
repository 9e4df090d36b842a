"""Tests that build code is reported before it runs."""

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.driver import NO_GPU
from tests.lab.projects import make_sdist
from tests.lab.wheels import make_wheel


@pytest.fixture
def workshop(workshop, play):
    play(NO_GPU)
    return workshop


@pytest.mark.parametrize(
    "command", mostly_heavy(["lock -q", "lock --dry-run"], ["lock --dry-run"])
)
def test_builds_are_reported_before_they_run(
    workshop, stand_in_folder, tmp_path, command
):
    served, ran = stand_in_folder / "simple", tmp_path / "ran"
    make_wheel(served, "plain", "1.0", requires=["strange"])
    make_sdist(served, "strange", "1.0", ["odd"], is_silent=True)
    make_sdist(served, "odd", "1.0", is_silent=True)
    ran.touch()
    recording = workshop.having(LAB_RAN=str(ran))
    words = (*command.split(), "plain", "--backend", "cpu")
    with recording.start(*words) as running:
        seen: list[str] = []
        for line in running.stderr or ():
            seen += [line.split()[1]] if "running its build code" in line else []
            assert packages_in(ran) <= {f"{name}-1.0" for name in seen}, line
    assert running.returncode == 0
    assert seen == ["strange", "odd"]
    assert packages_in(ran) == {"strange-1.0", "odd-1.0"}


def packages_in(file):
    """Return the packages whose build code ran."""
    return {line.split()[0] for line in file.read_text("utf-8").splitlines()}


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
def test_c_extension_is_built_by_setuptools(workshop, words):
    for name, text in (
        ("setup.py", EXTENSION),
        ("needs.txt", "cowsay\n"),
        ("fast_thing.c", C_MODULE),
    ):
        workshop.write(name, text)
    real = workshop.having(UV_DEFAULT_INDEX="")
    done = real.succeed("install", *words)
    assert "running its build code" in done.err
    assert "fast_thing" in real.python(
        "import cowsay, fast_thing; print(fast_thing.__file__)"
    )
    assert real.document("install")["data"]["environment"]["status"] == "none"
