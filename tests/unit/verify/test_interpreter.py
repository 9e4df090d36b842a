import subprocess
import sys
from pathlib import Path

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.versions import CPU, Backend
from gpuinstall.verify.devices import CPU_TARGET
from gpuinstall.verify.interpreter import FoundTorch, Interpreter, inspect_interpreter
from gpuinstall.verify.kernel_run import KernelRun
from tests.lab.pythons import interpreter

HERE = Path(sys.executable)


def found(
    version=None,
    *,
    torch=None,
    first=None,
    venv=True,
    **constants,
):
    if version:
        constants["__version__"] = version
    return FoundTorch("3.12.1", venv, torch, constants, first=first or torch)


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
HIDDEN = found(first="/here/torch.py", venv=False)
OF_USER = found("2.9.1", torch="/home/a/.local/torch", venv=False)


@pytest.mark.parametrize(
    ("isolated", "plain", "tested", "shadow", "flags"),
    [
        (OWN, OTHER, OWN, "/here/torch.py", ("-I",)),
        # A venv without torch uses no other one, but a system's Python uses its user's.
        (found(), OTHER, found(), "/here/torch.py", ("-I",)),
        (SYSTEM, OF_USER, OF_USER, None, ()),
        (OF_USER, OTHER, OF_USER, "/here/torch.py", ("-I",)),
        # The system's Python does not verify a module of this folder.
        (SYSTEM, HIDDEN, HIDDEN, "/here/torch.py", ()),
    ],
)
def test_shadowing_torch_on_path_is_detected(isolated, plain, tested, shadow, flags):
    interpreter = Interpreter(isolated, plain)
    assert (interpreter.torch_to_verify, interpreter.flags) == (tested, flags)
    assert interpreter.shadow == shadow


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
