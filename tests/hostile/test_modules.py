"""Tests that child interpreters import no module of the working folder."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frozen import GPUINSTALL
from tests.lab.clone import ROOT
from tests.lab.environments import packages
from tests.lab.pythons import interpreter
from tests.lab.workshop import Workshop

QUICK = (
    "__future__",
    "collections",
    "ctypes",
    "importlib",
    "json",
    "os",
    "random",
    "sitecustomize",
    "torch",
    "usercustomize",
)


def imported_names():
    """Return the top-level modules that gpuinstall and its kernels import."""
    names = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
    return {name.partition(".")[0] for name in names}


def every_name():
    """Return the names of all modules that a child interpreter may import."""
    further = {"__future__", "sitecustomize", "usercustomize", "torch", "numpy"}
    further |= {"triton", "torchvision", "pip", "setuptools", "wheel", "sympy"}
    return sorted(further | imported_names() | sys.stdlib_module_names)


class Folder:
    """A project folder whose modules leave a trace if they are imported."""

    def __init__(self, workshop: Workshop, trace: Path):
        self.workshop = workshop
        self.trace = trace

    def add_modules(self, names):
        """Write a module of each name, and a package of a few."""
        for name in names:
            code = (
                f"with open({str(self.trace)!r}, 'a') as f: f.write({name!r} + '\\n')\n"
            )
            (self.workshop.folder / f"{name}.py").write_text(code, "utf-8")

    def start(self, *words: str, modules: Path | None = None):
        """Run a command with a PYTHONPATH that leads to the folder.

        Args:
            words: The command.
            modules: The last folder in PYTHONPATH, outside this folder.
        """
        python, script = GPUINSTALL
        path = os.pathsep.join(("", ".", str(self.workshop.folder), str(modules or "")))
        environment = {
            "GPUINSTALL_TRUST_FOLDER": "0",
            **self.workshop.environment,
            "PYTHONPATH": path,
        }
        argv = [python, "-I", script, *words]
        # ``process.run`` would remove these folders itself.
        return subprocess.run(
            argv,
            env=environment,
            cwd=self.workshop.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def folder(here, tmp_path):
    """Return a project folder with an environment that gpuinstall created."""
    # hook writes the user's settings.
    own = here.having(HOME=str(tmp_path / "home"))
    assert own.run("install").status == 0
    return Folder(own, tmp_path / "executed")


QUICK_COMMANDS = (
    "install --upgrade --replace",
    "verify --deep",
    "verify --bench",
    "verify --python {bare}",
    "install --into --dry-run --python {bare}",
    "plan --python {bare}",
    "doctor",
    "hook pip",
    "env rollback",
    "probe",
)
"""Commands that start each child interpreter."""
COMMANDS = (
    *QUICK_COMMANDS,
    "install filelock",
    "sync",
    "verify",
    "verify --deep --python {bare}",
    "hook uv",
    "env list",
    "lock",
)


def run_commands(folder, commands, bare: Path):
    """Run commands, with the path of a Python for ``{bare}``."""
    for command in commands:
        words = command.format(bare=bare)
        done = folder.start(*words.split())
        assert done.returncode != 1, done.stderr
        assert not folder.trace.exists(), f"{words}: {folder.trace.read_text('utf-8')}"


def test_no_command_imports_modules_of_the_folder(folder):
    folder.add_modules(QUICK)
    run_commands(folder, QUICK_COMMANDS, interpreter("3.12"))


def test_verify_reports_torch_module_of_the_folder(folder):
    folder.add_modules(["torch"])
    done = folder.start("verify")
    place = folder.workshop.folder
    message = f"modules in this folder ({place}) hide installed packages: torch"
    assert message in done.stdout + done.stderr
    assert done.returncode == 5
    assert not folder.trace.exists()


@pytest.mark.heavy
@pytest.mark.parametrize("version", ["3.8", "3.10", "3.13"])
def test_no_command_imports_any_name_of_the_folder(folder, version):
    folder.add_modules(every_name())
    compiling = Folder(folder.workshop.having(UV_COMPILE_BYTECODE="1"), folder.trace)
    run_commands(compiling, COMMANDS, interpreter(version))


@pytest.mark.heavy
def test_compilers_import_no_module_of_the_folder(here, real_torch, tmp_path):
    folder = Folder(here.having(GPUINSTALL_TRUST_FOLDER="1"), tmp_path / "executed")
    folder.add_modules(every_name())
    python = str(interpreter("3.11"))

    own = folder.start("verify", "--deep", "--venv", str(real_torch), "--json")
    # A module system sets PYTHONPATH, so Python is not isolated.
    other = folder.start(
        "verify", "--deep", "--python", python, "--json", modules=packages(real_torch)
    )

    for done in (own, other):
        (device,) = json.loads(done.stdout)["data"]["devices"]
        checks = {check["name"]: check["status"] for check in device["checks"]}
        assert checks.pop("surroundings") == "failed"
        assert checks["compile"] == "passed"
        assert "failed" not in checks.values(), checks
    assert not folder.trace.exists(), folder.trace.read_text("utf-8")
