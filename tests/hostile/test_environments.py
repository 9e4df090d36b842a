"""Tests that environments in a repository are not trusted."""

import json
import sys

import pytest

from gpuinstall.base import process
from tests.frozen import GPUINSTALL
from tests.lab.bounded import find_run_fault, run
from tests.lab.cases import mostly_heavy
from tests.lab.driver import NO_GPU
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
