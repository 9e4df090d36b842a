import os
import sys
import time
from pathlib import Path

import pytest

from gpuinstall.base import process
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.timeouts import Timeouts, read_timeouts
from tests.lab.pace import within
from tests.lab.processes import has_ended


def test_subprocess_error_lines_are_reported_and_kept():
    heard: list[str] = []
    code = "import sys; print('quiet'); sys.stderr.write('one\\ntwo\\n'); sys.exit(3)"
    done = process.run([sys.executable, "-c", code], each_error_line=heard.append)
    assert heard == ["one\n", "two\n"]
    assert (done.status, done.out, done.err) == (3, "quiet\n", "one\ntwo\n")


def test_subprocess_receives_only_its_own_input():
    code = """
import sys
from gpuinstall.base import process
reads = [sys.executable, "-c", "import sys; print(sys.stdin.read())"]
print([process.run(reads, text=text).out for text in ("given", None)], input())
"""
    done = process.run([sys.executable, "-c", code], text="ours")
    assert done.out == "['given\\n', '\\n'] ours\n", done.err


COMPILER = "import os, time\npid = os.fork()\nif pid == 0:\n    time.sleep(60)\nprint(pid, flush=True)\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
@pytest.mark.parametrize(
    ("then", "status"), [("time.sleep(60)", None), ("os._exit(1)", 1)]
)
def test_process_group_is_terminated_with_its_program(then, status):
    done = process.run([sys.executable, "-c", COMPILER + then], seconds=1, group=True)
    assert done.status == status
    assert has_ended(done.out.strip())


HOLDER = "import os, sys, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(40)\n    os._exit(0)\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork")
@pytest.mark.parametrize(
    ("then", "status", "out"),
    [("time.sleep(40)", None, ""), ("print('done')", 0, "done\n")],
)
@pytest.mark.parametrize("heard", [True, False])
def test_background_child_holding_output_does_not_block(then, status, out, *, heard):
    begun = time.monotonic()
    done = process.run(
        [sys.executable, "-c", HOLDER + then],
        seconds=1,
        each_error_line=(lambda _line: None) if heard else None,
    )
    assert time.monotonic() - begun < 20
    assert (done.status, done.out) == (status, out)


SLEEPS = "import time\nprint('begun', flush=True)\ntime.sleep(60)"
LARGE = "import time\nprint('begun', flush=True)\nx = b'x' * 10**9\ntime.sleep(60)"
ENDLESS = "import os\nprint('begun', flush=True)\nwhile True: os.write(1, b'x' * 65536)"


@pytest.mark.parametrize(
    ("code", "silence", "excess"),
    [
        (SLEEPS, 0.0025, "not finished after 1 s"),
        (LARGE, 60, "used more than 1 GB of memory"),
        (ENDLESS, 60, "wrote more than 10 MB"),
    ],
)
def test_slow_or_verbose_program_is_stopped(code, silence, excess):
    command = [sys.executable, "-c", code]
    timeouts = Timeouts(silence=silence)
    with within(20):
        done = process.run(command, seconds=timeouts.total, memory=10**9)
        with pytest.raises(InstallationError, match=f"was stopped: {excess}") as caught:
            process.run(command, timeouts=timeouts, memory=10**9)
    assert (done.status, done.ok, done.excess) == (None, False, excess)
    assert done.out.startswith("begun\n")
    assert len(done.out) <= 2 * process.OUTPUT
    assert caught.value.code == "too-slow"


@pytest.mark.parametrize("said", ["soon", "0", "-1", "inf", "nan"])
def test_gpuinstall_silence_must_be_positive(said, monkeypatch):
    monkeypatch.setenv("GPUINSTALL_SILENCE", said)
    with pytest.raises(UsageError, match="GPUINSTALL_SILENCE"):
        read_timeouts()


def test_uv_timeouts_depend_on_variables(monkeypatch):
    usual = read_timeouts().variables()
    assert (usual["UV_HTTP_TIMEOUT"], usual["UV_HTTP_RETRIES"]) == ("30", "3")
    monkeypatch.setenv("UV_HTTP_RETRIES", "9")
    chosen = Timeouts(silence=7).variables()
    assert (chosen["UV_HTTP_TIMEOUT"], chosen["UV_HTTP_RETRIES"]) == ("7", "9")


def test_relative_folders_on_path_are_ignored(tmp_path, monkeypatch):
    program = tmp_path / "a-program"
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join((".", "", os.defpath)))

    assert process.find_program("a-program") is None
    assert process.find_program("a-program", str(tmp_path)) == str(program)
    code = "import os; print(os.environ['PATH'])"
    done = process.run([sys.executable, "-I", "-c", code])
    assert all(Path(one).is_absolute() for one in done.out.strip().split(os.pathsep))


def test_modules_of_the_project_are_removed_from_pythonpath(tmp_path, monkeypatch):
    project = tmp_path / "project"
    for folder in (project / ".git", project / "src", tmp_path / "modules"):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(project / "src")
    monkeypatch.chdir(project / "src")
    kept = str(tmp_path / "modules")
    entries = ("", ".", kept, str(project), str(tmp_path / "link"), "src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entries))
    code = "import os; print(os.environ.get('PYTHONPATH'))"
    assert process.run([sys.executable, "-I", "-c", code]).out.strip() == kept
    # The home folder is not a project.
    monkeypatch.setenv("HOME", str(project / "src"))
    monkeypatch.setenv("PYTHONPATH", str(project / "src" / "modules"))
    done = process.run([sys.executable, "-I", "-c", code])
    assert done.out.strip() == str(project / "src" / "modules")
