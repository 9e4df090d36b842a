"""Tests of ``gpuinstall plan`` in a process: imports and documents."""

import json
import subprocess
import sys

import pytest

from tests.lab.forked import gpuinstall

A100 = {
    "schema": "gpuinstall.machine/1",
    "os": "linux",
    "arch": "x86_64",
    "driver": {"version": "535.183.01", "cuda": "12.2"},
    "gpus": [
        {
            "index": 0,
            "name": "NVIDIA A100",
            "uuid": "GPU-1",
            "compute_capability": "8.0",
        }
    ],
}


def plan(*arguments, **kwargs):
    """Return the JSON document that ``plan --json`` prints."""
    done = gpuinstall("plan", *arguments, "--json", **kwargs)
    document = json.loads(done.out)
    assert document["exit_code"] == done.status
    return document


def test_plan_accepts_machine_json_from_file_or_stdin(tmp_path):
    file = tmp_path / "a100.json"
    file.write_text(json.dumps(A100))
    bare = plan("--machine", str(file))

    assert bare["data"]["build"]["torch"] == "2.14.1"
    assert plan("--machine", "-", text=json.dumps(A100)) == bare
    assert (
        plan("--machine", "-", text=json.dumps({"gpuinstall": 1, "data": A100})) == bare
    )


HEAVY = {
    "asyncio",
    "concurrent.futures",
    "csv",
    "ctypes",
    "email",
    "gpuinstall.catalog.failures",
    "gpuinstall.lock.file.lock",
    "gpuinstall.machine.probe",
    "gpuinstall.sources.session",
    "gpuinstall.sources.web",
    "hashlib",
    "http.client",
    "logging",
    "packaging.markers",
    "packaging.requirements",
    "packaging.specifiers",
    "packaging.tags",
    "packaging.utils",
    "platformdirs",
    "pynvml",
    "random",
    "requests",
    "rich",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "urllib.request",
    "zipfile",
}


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--json", "--gpu", "GTX 1080", "--driver", "580"],
        ["--help"],
        ["plan", "--help"],
    ],
)
def test_plan_imports_no_heavy_modules(tmp_path, arguments):
    code = (
        "import sys; from gpuinstall.cli.main import run_command_line; "
        f"run_command_line({arguments}); "
        f"print(sorted({HEAVY} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stderr == "[]\n"


def test_importing_main_loads_no_heavy_standard_modules(tmp_path):
    code = (
        "import sys; before = set(sys.modules); import gpuinstall.__main__; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = done.stdout.split()

    assert [name for name in imported if name.startswith("gpuinstall.")] == [
        "gpuinstall.__main__",
        "gpuinstall.base",
        "gpuinstall.base.version",
    ]
    assert not {"contextlib", "json", "pathlib", "re", "typing"}.intersection(imported)
