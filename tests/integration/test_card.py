"""Tests of ``make card`` in a simulated cloud sandbox with an H200.

Python and torch are in an environment outside the home. The driver is in a read-only
folder that only LD_LIBRARY_PATH contains. The kernel reports an old release, as gVisor
does.
"""

import json
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tools import card

from gpuinstall.base.uv import uv
from tests.lab.driver import H200, FakeDriver
from tests.lab.processes import succeed
from tests.lab.pythons import interpreter
from tests.lab.stub_torch import modules
from tests.lab.wheels import make_wheel

MACHINE = FakeDriver((H200,), driver="580.159.03", cuda=13000)
TORCH = "2.11.0+cu130"
OLD_KERNEL = r"""
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
int uname(struct utsname *told) {
    int status = syscall(SYS_uname, told);
    strcpy(told->release, "4.4.0");
    return status;
}
"""


def image(folder):
    """Create an image's environment with torch, and return its Python.

    As on the default index, the version of torch has no label in METADATA.
    """
    version, tags = TORCH.partition("+")[0], "cp312-cp312-manylinux_2_28_x86_64"
    wheel = make_wheel(folder, "torch", version, tags, modules=modules(TORCH, "cu130"))
    python = folder / "image" / "bin" / "python"
    own = ("--python", interpreter("3.12"))
    succeed([uv(), "venv", "--no-project", *own, folder / "image"])
    alone = ("--no-index", "--no-deps", "--python", python)
    succeed([uv(), "pip", "install", *alone, wheel])
    return python


def lay_out(folder, libraries, monkeypatch):
    """Put a driver in LD_LIBRARY_PATH, and simulate an old kernel."""
    driver = folder / "driver" / "580.159.03"
    driver.mkdir(parents=True)
    for library in libraries.glob("*/*.so.1"):
        shutil.copy2(library, driver)
    driver.chmod(0o555)
    kernel = folder / "kernel.so"
    compiler = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(kernel)]
    succeed(compiler, text=OLD_KERNEL)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("LD_PRELOAD", str(kernel))


RUN = """
import sys
from pathlib import Path
from tools import card
folder, python, limit, budget, copies = sys.argv[1:]
card.FOLDER = Path(folder)
card.LIMIT_S, card.BUDGET_S = float(limit), float(budget)
if copies == "False":
    card.damage_environment_copy = lambda *_: None
sys.argv[1:] = [python]
card.main()
"""
ROW = re.compile(r"^\| \[(.+?)\]\((.+?)\) \| (\w+) \| [0-9.]+ \|$", re.MULTILINE)


def command(
    folder,
    python,
    *,
    limit=150,
    budget=540,
    copies=True,
):
    """Return the command of ``make card`` with its evidence in a folder."""
    settings = map(str, (folder, python, limit, budget, copies))
    return [sys.executable, "-c", RUN, *settings]


def started(words):
    """Start a command, with a pipe to read its output."""
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def evidence(folder):
    """Return the exit status and output of each recorded step."""
    page = (folder / "evidence" / "card.md").read_text("utf-8")
    return {
        name: (status, (folder / "evidence" / file).read_text("utf-8"))
        for name, file, status in ROW.findall(page)
    }


@pytest.fixture
def python(tmp_path, play, libraries, monkeypatch):
    made = image(tmp_path / "opt")
    play(MACHINE)
    lay_out(tmp_path, libraries, monkeypatch)
    return made


@pytest.mark.heavy
def test_gpu_test_evidence_is_written_after_each_step(tmp_path, python):
    folder = tmp_path / "card"
    steps = 0
    with started(command(folder, python)) as run:
        for line in run.stdout or ():
            steps += bool(re.search(r"[0-9.]+ s$", line))
            assert len(evidence(folder)) >= steps, line
    page = (folder / "evidence" / "card.md").read_text("utf-8")
    shown = evidence(folder)
    probe, preflight, explained = (
        json.loads(shown[name][1])["data"] for name in ("probe", "preflight", "explain")
    )

    assert run.returncode == 0, page
    assert probe["driver"]["version"] == "580.159.03"
    assert probe["problems"] == []
    assert preflight["preflight"]["gpus"][0]["status"] == "proven"
    assert shown["torch"][1].endswith(f"torch {TORCH}, GPUs: 1\n")
    assert shown["verify"][0] == shown["install --into"][0] == "0", page
    assert shown["--into, undone"][0] == "5", page
    assert shown["what is there"] == ("0", f"torch {TORCH} note 1.0\n"), page
    assert explained["causes"][0]["id"] == "F15"
    # The small torch computes nothing; test_verify_cpu.py has a failing kernel.
    assert "a wrong kernel" in shown
    assert list(shown)[:3] == ["probe", "nvidia-smi", "preflight"]


@pytest.mark.heavy
def test_hanging_gpu_test_step_is_killed_with_children(
    tmp_path, python, play_kernels, monkeypatch
):
    play_kernels({"*": {"hang": True}})
    monkeypatch.setenv("PATH", str(tmp_path))  # contains no cp, du, cc, or nvidia-smi

    run = started(command(tmp_path / "card", python, limit=20, budget=60))
    output, _ = run.communicate()
    shown = evidence(tmp_path / "card")

    assert run.returncode == 1, output
    assert (shown["verify"][0], shown["probe"][0]) == ("ended", "0")
    assert "no time was left" in [text for _, text in shown.values()]
    assert [path for path in running() if str(python) in path] == []


def test_python_warning_does_not_stop_gpu_tests(monkeypatch):
    class ReachedError(Exception):
        """Raised when the step after the copy is reached."""

    def plant(*_):
        raise ReachedError

    said = "UserWarning: no NumPy\ntorch==2.9.1 cp312"
    monkeypatch.setattr(card, "verify_wrong_kernel", plant)
    monkeypatch.setattr(card.Card, "run", lambda *_: card.Step("", "", 0, said, 1.0))
    with pytest.raises(ReachedError):
        card.damage_environment_copy(card.Card(Path(sys.executable)))


@pytest.mark.heavy
def test_terminated_gpu_test_run_kills_its_children(tmp_path, python):
    with started(command(tmp_path / "card", python)) as run:
        assert run.stdout is not None
        run.stdout.readline()
        run.terminate()

    assert run.returncode == 143
    assert evidence(tmp_path / "card")["probe"][0] == "0"
    assert [words for words in running() if str(tmp_path / "card") in words] == []


def running():
    """Return the command lines of all processes."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(file.read_text("utf-8", "replace").replace("\0", " "))
    return lines
