"""The whole pipeline as a user runs it: real uv, real HTTP to a stand-in index, a compiled driver, real bindings."""

import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gpuinstall.base import process
from tests.lab.cases import mostly_heavy
from tests.lab.driver import RTX_4090
from tests.lab.pace import within


def leftovers(workshop):
    """What lies beside an environment although nobody works on it."""
    work = workshop.folder / ".venv.gpuinstall"
    expected = {"previous", "lock", ".gitignore"}
    return {entry.name for entry in work.iterdir()} - expected if work.exists() else set()


@pytest.mark.heavy
@pytest.mark.parametrize("stops", [14])
def test_kill_9_at_any_line_of_a_swap_leaves_an_environment_and_the_next_run_cleans_up(
    workshop, play, stops
):
    """``tests.lab.dying`` counts the lines of the room that builds and swaps, and dies at one of them."""
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    for _ in range(2):
        # The first one also keeps the sizes of files: the last lines that it counts come in no other run.
        counted = workshop.dying(10**9, "install", "torch==2.14.1")
        workshop.document("install", "torch==2.13.0")
    total = int(counted.err.rpartition("lines: ")[2])
    for line in range(1, total - 10, total // stops):
        assert workshop.dying(line, "install", "torch==2.14.1").status == -signal.SIGKILL
        held = workshop.python("import torch; print(torch.__version__)")
        assert held in {"2.13.0+cu126", "2.14.1+cu126"}
        workshop.document("install", f"torch=={held.partition('+')[0]}")
        assert f'version = "{held}"' in workshop.lock("pylock.cu126.toml")
        assert leftovers(workshop) == set()
        workshop.document("install", "torch==2.13.0")


@pytest.mark.heavy
@pytest.mark.parametrize("stops", [16])
def test_an_interrupt_at_any_line_of_a_swap_leaves_environment_and_lock_in_step_and_nothing_else(
    workshop, play, stops
):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    counted = workshop.dying(10**9, "install", "torch==2.14.1")
    total = int(counted.err.rpartition("lines: ")[2])
    held = "2.14.1"
    for line in range(total // 2, total - 10, total // stops):
        wanted = "2.13.0" if held == "2.14.1" else "2.14.1"
        done = workshop.dying(line, "install", f"torch=={wanted}", number=signal.SIGINT)
        assert done.status == 130, done.err
        build = workshop.python("import torch; print(torch.__version__)")
        assert f'version = "{build}"' in workshop.lock("pylock.cu126.toml")
        assert leftovers(workshop) == set()
        held = build.partition("+")[0]


@pytest.mark.heavy
def test_a_uv_that_outlives_its_killed_run_writes_nothing_into_the_next_one(workshop, play):
    play(RTX_4090)
    running = workshop.start("install", "torch==2.13.0")
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while not (
        filling := [
            child for child in map(int, children.read_text().split()) if fills_an_environment(child)
        ]
    ):
        assert running.poll() is None, running.communicate()
    os.kill(filling[0], signal.SIGSTOP)
    running.kill()
    running.communicate()
    workshop.document("install", "torch==2.14.1")
    os.kill(filling[0], signal.SIGCONT)
    while Path(f"/proc/{filling[0]}/exe").exists():
        time.sleep(0.01)
    found = sorted(
        path.name for path in (workshop.folder / ".venv").glob("lib/*/site-packages/torch-*")
    )
    assert found == ["torch-2.14.1+cu126.dist-info"]


def fills_an_environment(child):
    """Whether this process is uv at work on the packages of an environment that is being made."""
    try:
        words = Path(f"/proc/{child}/cmdline").read_bytes()
    except OSError:
        return False
    return b"\0pip\0" in words and b".venv.gpuinstall/staging-" in words


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has a file system that not even root may write"
)
def test_a_folder_that_may_not_be_written_is_one_clear_line(workshop, stand_in, play):
    play(RTX_4090)
    done = workshop.run("install", "--venv", "/sys/here/.venv")
    assert done.status == 4
    assert "cannot be written" in done.err
    assert stand_in.sent() == {}


@pytest.mark.heavy
def test_a_full_disk_leaves_the_old_environment(workshop, play):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    words = [
        "prlimit",
        "--fsize=2000",
        sys.executable,
        "-m",
        "gpuinstall",
        "install",
        "torch==2.14.1",
        "--json",
    ]
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit to make every file that is larger than 2000 bytes fail")
    done = process.run(words, env=workshop.environment, cwd=workshop.folder)
    assert done.status == 4, done.out + done.err
    assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu126"
    assert workshop.entries() == {".venv", "pylock.cu126.toml"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("name", mostly_heavy(["SIGINT", "SIGTERM", "SIGHUP"], ["SIGINT"]))
def test_an_interrupted_run_leaves_nothing_behind(workshop, stand_in, play, name):
    play(RTX_4090)
    stand_in.r2.pace = 2.0
    running = workshop.start("install")
    while not any(asked.path.endswith(".whl") and asked.method == "GET" for asked in stand_in.log):
        time.sleep(0.05)
    running.send_signal(signal.Signals[name])
    _, said = running.communicate(timeout=300)
    assert running.returncode == 130, said
    assert workshop.entries() == set()


@pytest.fixture
def dropping():
    """A host that lets every connection hang, as a firewall does."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as full, ExitStack() as waiting:
        for _ in range(4):
            one = waiting.enter_context(closing(socket.socket()))
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"


@pytest.mark.heavy
def test_an_interrupt_does_not_wait_for_a_host_that_does_not_answer(workshop, play, dropping):
    play(RTX_4090)
    deaf = workshop.having(GPUINSTALL_TORCH_INDEX=f"{dropping}/whl")
    running = deaf.start("install", "--json")
    assert running.stderr is not None
    while "Preflight" not in running.stderr.readline():
        pass
    time.sleep(0.3)
    with within(2):
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=300)
    assert running.returncode == json.loads(out)["exit_code"] == 130
    assert workshop.entries() == set()


@pytest.mark.parametrize(
    ("host", "silent"),
    [
        ("http://127.0.0.1:9", ("UV_DEFAULT_INDEX", "GPUINSTALL_TORCH_INDEX")),
        pytest.param("http://nowhere.invalid", ("UV_DEFAULT_INDEX",), marks=pytest.mark.heavy),
        pytest.param("dropping", ("UV_DEFAULT_INDEX",), marks=pytest.mark.heavy),
    ],
)
def test_a_silent_default_index_is_found_out_before_uv_asks_it_and_said_once(
    workshop, play, dropping, host, silent
):
    play(RTX_4090)
    address = dropping if host == "dropping" else host
    deaf = workshop.having(**dict.fromkeys(silent, f"{address}/simple"))
    with within(8):  # uv alone would be patient for 45 s
        done = deaf.run("install")
    assert done.status == 4, done.err
    assert done.err.count(address.removeprefix("http://")) == 1
    assert "HTTPS_PROXY" in done.err
    assert workshop.entries() == set()


@pytest.mark.heavy
def test_two_runs_at_once_lose_nothing_of_what_either_adds(workshop, stand_in, play):
    play(RTX_4090)
    workshop.document("install")
    stand_in.default.pace = 0.2
    first = workshop.start("install", "cowsay", "--json")
    while not (workshop.folder / ".venv.gpuinstall" / "owner").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    second = workshop.start("install", "numpy", "--json")
    outputs = [run.communicate(timeout=300) for run in (first, second)]
    assert [run.returncode for run in (first, second)] == [0, 0], outputs
    assert workshop.python("import cowsay, numpy, torch; print('all')") == "all"
    assert {"cowsay", "numpy"} <= set(re.findall(r'"(\w+)"', workshop.lock("pylock.cu126.toml")))
