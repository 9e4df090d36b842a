import errno
import os
import sys
from threading import Event
from time import monotonic

import pytest

from gpuinstall.base.process import Finished
from gpuinstall.machine import children
from gpuinstall.machine.children import (
    classify_fault,
    describe_end,
    is_timeout,
    run_children,
)
from tests.lab.pace import within
from tests.lab.skips import needs_signals


def python(code):
    return [sys.executable, "-I", "-S", "-c", code], dict(os.environ)


def nothing():
    raise AssertionError("nothing was to be waited for")


def test_children_run_in_parallel_and_return_in_order():
    commands = [
        python(f"import time; time.sleep(1.5); print({number})") for number in range(4)
    ]
    with within(5.5):
        assert [
            finished.out for finished in run_children(commands, 60, lambda: None)
        ] == [
            "0\n",
            "1\n",
            "2\n",
            "3\n",
        ]


def test_slow_child_does_not_stop_other_children():
    late, done = run_children(
        [python("import time; time.sleep(60)"), python("print(1)")], 1, nothing
    )
    assert (late.status, describe_end(late, 1)) == (None, "not finished after 1 s")
    assert done.out == "1\n"


def test_unkillable_child_is_abandoned(monkeypatch):
    woken = Event()

    def asleep_in_the_kernel(*_, **__):
        woken.wait(30)
        return Finished((), 0, "too late", "")

    monkeypatch.setattr(children, "run_python", asleep_in_the_kernel)
    monkeypatch.setattr(children, "NOTICE_AFTER", 0.1)
    start = monotonic()
    (finished,) = run_children([python("")], 0.1)
    seconds = monotonic() - start
    woken.set()
    assert (finished.status, finished.out) == (None, "")
    assert seconds < 5


def test_unexecutable_program_returns_a_result(tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_bytes(b"\x00not a program")
    program.chmod(0o755)
    (finished,) = run_children([([str(program)], {})], 5, nothing)
    assert describe_end(finished, 5).startswith("exited with status 126: ")


BY_SYSTEM = "the system does this when the machine or the job runs out of memory"


@pytest.mark.parametrize(
    ("status", "err", "fault", "is_late", "message"),
    [
        (None, "", "timeout", True, "not finished after 180 s"),
        # From Python's faulthandler, whose text other programs can print.
        (
            1,
            "Timeout (0:03:00)!\nThread\n",
            "unasked",
            True,
            "not finished after 180 s",
        ),
        (
            1,
            "GET: Timeout (0:00:05)",
            "unasked",
            False,
            "exited with status 1: GET: Timeout (0:00:05)",
        ),
        pytest.param(
            -11,
            "Timeout (0:00:05)\n",
            "crash",
            False,
            "killed by SIGSEGV",
            marks=needs_signals,
        ),
        pytest.param(-7, "", "crash", False, "killed by SIGBUS", marks=needs_signals),
        pytest.param(-6, "", "crash", False, "killed by SIGABRT", marks=needs_signals),
        pytest.param(
            -4,
            "",
            "crash",
            False,
            "killed by SIGILL: this processor lacks an instruction that the build uses",
            marks=needs_signals,
        ),
        (
            0xC0000005,
            "",
            "crash",
            False,
            "terminated by Windows exception 0xC0000005",
        ),
        # Killed for lack of memory, by a job's limit, or by a person.
        pytest.param(
            -9,
            "",
            "unasked",
            False,
            f"killed by SIGKILL: {BY_SYSTEM}",
            marks=needs_signals,
        ),
        pytest.param(
            -15, "", "unasked", False, "killed by SIGTERM", marks=needs_signals
        ),
        pytest.param(
            -64, "", "unasked", False, "killed by SIGRTMAX", marks=needs_signals
        ),
        pytest.param(
            -99, "", "unasked", False, "killed by signal 99", marks=needs_signals
        ),
        pytest.param(
            3,
            "first\nfree(): invalid pointer\n",
            "unasked",
            False,
            "exited with status 3: free(): invalid pointer",
            marks=needs_signals,
        ),
        pytest.param(
            3,
            "",
            "unasked",
            False,
            "exited with status 3: no output",
            marks=needs_signals,
        ),
        (
            1,
            "Fatal Python error: x\n\nThread 1\n",
            "unasked",
            False,
            "exited with status 1: Fatal Python error: x",
        ),
    ],
)
def test_child_exit_status_is_described(status, err, fault, is_late, message):
    finished = Finished((), status, "", err)
    assert describe_end(finished, 180) == message
    assert (classify_fault(finished), is_timeout(finished)) == (fault, is_late)


def test_process_limit_raises_blocking_io_error(monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(children, "run_python", refuse)
    with pytest.raises(BlockingIOError):
        run_children([python("")], 1, nothing)
