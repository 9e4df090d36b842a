"""Tests that environments in a repository are not trusted."""

import json
import sys
from dataclasses import replace

import pytest

from gpuinstall.base import process
from tests.frozen import GPUINSTALL
from tests.lab.bounded import find_run_fault, run
from tests.lab.cases import mostly_heavy
from tests.lab.driver import NO_GPU
from tests.lab.programs import write_program
from tests.lab.workshop import Workshop

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="requires Unix scripts instead of programs"
)

PLACES = {
    "purelib": "/nowhere",
    "platlib": "/nowhere",
    "scripts": "/nowhere",
    "data": "/nowhere",
}
ENVIRONMENT = {
    "version": "3.12",
    "prefix": "/nowhere",
    "venv": True,
    "paths": PLACES,
    "packages": [],
}
FOUND = {"python": "3.12.1", "venv": True, "torch": "/nowhere", "version": "2.14.1"}
ANSWERS = {
    "nothing": "",
    "deep": "[" * 200_000,
    **{
        f"{key} is {value!r}": json.dumps({**document, key: value})
        for document, values in (
            (
                ENVIRONMENT,
                {
                    "version": 5,
                    "prefix": "here",
                    "paths": {},
                    "packages": [1, [2]],
                    "venv": "yes",
                },
            ),
            (
                ENVIRONMENT,
                {
                    "prefix": "/a\0",
                    "paths": {**PLACES, "data": "here"},
                    "packages": [{"name": 1}],
                },
            ),
            (
                FOUND,
                {
                    "python": None,
                    "torch": 5,
                    "version": 7,
                    "toolkit": [5, 6],
                    "path": [5],
                },
            ),
            (
                {},
                {
                    "name": "device",
                    "architectures": 5,
                    "architecture": 5,
                    "measure": "products",
                    "status": [],
                },
            ),
            (
                {"name": "device", "status": "passed"},
                {"seconds": "a", "status": "zzz", "name": 5, "message": []},
            ),
        )
        for key, value in values.items()
    },
}
"""The output that the forged Python prints for any arguments."""


@pytest.fixture
def victim(here, tmp_path):
    """Return a folder with another user's environment."""
    here.document("install", "torch==2.14.1")
    here.document("install", "torch==2.13.0")
    write_program(
        here.folder / ".venv" / "bin" / "python",
        f': > {tmp_path / "executed"}\nexec {sys.executable} "$@"',
    )
    mine = here.having(XDG_STATE_HOME=str(tmp_path / "mine"))
    return replace(mine, caches=tmp_path / "the victims")


def test_environment_with_a_forged_python_is_not_started(victim, tmp_path):
    for words in (("probe",), ("plan",), ("install", "--dry-run"), ("env", "list")):
        victim.document(*words)
    assert victim.refusal("install", exit_code=4)["code"] == "python-replaced"
    untrusted = victim.having(GPUINSTALL_TRUST_FOLDER="0")
    refused = untrusted.refusal("env", "rollback", exit_code=2)
    assert refused["code"] == "no-previous"
    refused = untrusted.refusal("install", exit_code=2)
    assert refused["code"] == "folder-not-trusted"
    assert not (tmp_path / "executed").exists()
    untrusted.document("install", "--replace", "--discard-previous")
    assert not (tmp_path / "executed").exists()
    untrusted.document("install")


@pytest.mark.heavy
def test_starting_unmanaged_environment_is_reported(victim, tmp_path):
    read = victim.run("doctor")
    assert "was not started" in read.out
    assert not (tmp_path / "executed").exists()
    runs = (("run", "python", "--version"), ("run", "-q", "python", "--version"))
    for words in (("verify",), ("doctor", "--venv", ".venv"), *runs):
        assert (
            "in an environment that gpuinstall did not create" in victim.run(*words).err
        )


CHILD = (
    "import time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(90)\n    os._exit(0)\n"
    "while True: time.sleep(1)\n"
)
STARTS = {
    "writes without end": "while True: os.write(1, b'x' * 65536)\n",
    "leaves a child and sleeps": CHILD,
    **{
        name: f"os.write(1, {text.encode()!r})\nos._exit(0)\n"
        for name, text in ANSWERS.items()
    },
}
"""Code in the ``sitecustomize`` of an unmanaged environment."""


@pytest.mark.parametrize("name", mostly_heavy(STARTS, {"deep"}))
def test_output_of_unmanaged_environments_is_validated(name, tmp_path, play):
    play(NO_GPU)
    variables = Workshop(tmp_path, tmp_path / "caches", {"UV_OFFLINE": "1"}).environment
    process.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "app"])
    site = next((tmp_path / "app" / "lib").glob("python*")) / "site-packages"
    (site / "sitecustomize.py").write_text(f"import os\n{STARTS[name]}", "utf-8")
    faults = {}
    for words in (
        "verify --venv app",
        "doctor --venv app",
        "install --into --venv app torch==2.14.1",
    ):
        ended = run([*GPUINSTALL, *words.split()], variables, tmp_path, 300)
        if fault := find_run_fault(ended, {2, 4, 5}):
            faults[words] = fault

    assert faults == {}
