import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU, Backend
from gpuinstall.verify.devices import CPU_TARGET
from gpuinstall.verify.interpreter import (
    FoundTorch,
    Interpreter,
    find_interference,
    inspect_interpreter,
)
from gpuinstall.verify.kernel_run import KernelRun
from tests.lab.pythons import interpreter

HERE = Path(sys.executable)


def found(
    version=None,
    *,
    torch=None,
    venv=True,
    **constants,
):
    if version:
        constants["__version__"] = version
    return FoundTorch("3.12.1", venv, torch, constants)


@pytest.mark.parametrize(
    ("one", "backend"),
    [
        (found("2.14.1+cu126", cuda="12.6"), "cu126"),
        (found("2.15.0", cuda="13.0"), "cu130"),
        (found("2.9.1+cpu"), "cpu"),
        (found("2.9.1"), "cpu"),
        (found("2.9.1+rocm6.4", hip="6.4.43482-0f2d60242"), "rocm6.4"),
        (found("2.9.1+xpu", xpu="20250101"), "xpu"),
        (found(), None),
    ],
)
def test_torch_backend_is_read_from_version_or_toolkit(one, backend):
    assert (one.backend and one.backend.tag) == backend


@pytest.mark.parametrize(
    ("lines", "toolkit"),
    [
        ("cuda = '12.6'\nhip = None", Backend("cuda", "12.6")),
        ("cuda = None\nhip = '6.4.43482-0f2d60242'", Backend("rocm", "6.4")),
        ("cuda: 'str | None' = None\nhip = None\nxpu = '20250101'", Backend("xpu")),
        ("cuda = None", None),
    ],
)
def test_toolkit_is_read_without_importing_torch(tmp_path, monkeypatch, lines, toolkit):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.9.1'\n{lines}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    plain = inspect_interpreter(HERE).plain
    assert (plain.version, plain.backend) == ("2.9.1", toolkit or CPU)


OWN = found("2.9.1", torch="/env/torch")
OTHER = found("0.1", torch="/here/torch.py")
SYSTEM = found(venv=False)
OF_USER = found("2.9.1", torch="/home/a/.local/torch", venv=False)


@pytest.mark.parametrize(
    ("isolated", "plain", "tested", "flags"),
    [
        (OWN, OTHER, OWN, ("-I",)),
        # A venv without torch uses no other one, but a system's Python uses its user's.
        (found(), OTHER, found(), ("-I",)),
        (SYSTEM, OF_USER, OF_USER, ()),
        (OF_USER, OTHER, OF_USER, ("-I",)),
    ],
)
def test_system_python_verifies_torch_of_its_user(isolated, plain, tested, flags):
    interpreter = Interpreter(isolated, plain)
    assert (interpreter.torch_to_verify, interpreter.flags) == (tested, flags)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An environment with torch and a dependency, and an empty folder."""
    site = tmp_path / "env"
    for name, requirement in (("torch", "Requires-Dist: cli-tool\n"), ("cli_tool", "")):
        files = {
            f"{name}/__init__.py": "",
            f"{name}-1.0.dist-info/METADATA": f"Name: {name}\nVersion: 1.0\n{requirement}",
            f"{name}-1.0.dist-info/RECORD": f"{name}/__init__.py,,\n",
        }
        write_files(site, files)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return site


def write_files(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def interference(site, *users, requested=()):
    """Return the code, folder, and modules of each finding."""
    isolated = replace(OWN, path=(str(site),))
    plain = replace(OWN, path=(*map(str, users), str(site)))
    findings = find_interference(Interpreter(isolated, plain), site, requested)
    return [(finding.code, Path(finding.evidence or "")) for finding in findings]


@pytest.mark.parametrize("file", ["cli_tool.py", "cli_tool/__init__.py"])
def test_module_on_pythonpath_hides_dependency(tmp_path, monkeypatch, site, file):
    write_files(tmp_path / "old", {file: ""})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "old"))
    path = tmp_path / "old" / file.removesuffix("/__init__.py")
    assert interference(site) == [("python-path-first", path)]


@pytest.mark.parametrize(
    ("place", "name", "code"),
    [
        ("here", "torch.py", "module-in-folder"),
        ("user", "cli_tool.py", "user-packages-first"),
    ],
)
def test_modules_in_other_folders_hide_packages(tmp_path, site, place, name, code):
    write_files(tmp_path / place, {name: "", "other.py": ""})
    path = tmp_path / place / name
    assert interference(site, tmp_path / "user") == [(code, path)]


def test_environment_on_pythonpath_hides_nothing(tmp_path, monkeypatch, site):
    write_files(tmp_path / "after", {"torch.py": ""})
    folders = [str(site), str(tmp_path / "after")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    assert interference(site) == []


def test_folder_without_init_hides_nothing(tmp_path, site):
    write_files(tmp_path / "here", {"torch/notes.txt": "", "extra.py": ""})
    write_files(site, {"extra-1.0.dist-info/METADATA": "Name: extra\nVersion: 1.0\n"})
    assert interference(site) == []
    path = tmp_path / "here" / "extra.py"
    assert interference(site, requested=["extra"]) == [("module-in-folder", path)]


def test_local_project_does_not_hide_itself(tmp_path, site):
    write_files(tmp_path / "here", {"cli_tool/__init__.py": ""})
    origin = {"url": (tmp_path / "here").as_uri(), "dir_info": {}}
    record = site / "cli_tool-1.0.dist-info"
    (record / "direct_url.json").write_text(json.dumps(origin))
    assert interference(site) == []


def test_unexecutable_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError) as caught:
        inspect_interpreter(tmp_path / "python")
    assert caught.value.code == "python-unusable"
    assert caught.value.why == "No such file or directory"


def test_too_old_interpreter_is_reported():
    with pytest.raises(UsageError) as caught:
        inspect_interpreter(interpreter("3.7"))
    words = (
        "exited with status 1: it is Python 3.7, but the checks require 3.8 or newer"
    )
    assert caught.value.why == words


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.13"])
def test_kernel_checks_start_on_old_and_new_pythons(version):
    argv = KernelRun(interpreter(version), ("-I",), "quick").argv(CPU_TARGET)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert '"message": "ModuleNotFoundError: No module named \'torch\'"' in done.stdout
