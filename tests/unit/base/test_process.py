import sys
import time

import pytest

from gpuinstall.base import process
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.patience import Patience
from tests.lab.processes import has_ended


def test_each_line_is_heard_as_it_comes_and_kept():
    heard: list[str] = []
    code = "import sys; print('quiet'); sys.stderr.write('one\\ntwo\\n'); sys.exit(3)"
    done = process.run([sys.executable, "-c", code], each_error_line=heard.append)
    assert heard == ["one\n", "two\n"]
    assert (done.status, done.out, done.err) == (3, "quiet\n", "one\ntwo\n")


def test_a_program_that_takes_too_long_has_no_status_and_keeps_what_it_said():
    code = "import time; print('begun', flush=True); time.sleep(60)"
    done = process.run([sys.executable, "-c", code], seconds=1)
    assert (done.status, done.ok) == (None, False)
    assert done.out == "begun\n"


def test_a_program_gets_its_text_and_nothing_of_our_stdin():
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
def test_what_a_group_has_started_ends_with_it(then, status):
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
def test_a_program_whose_child_keeps_its_output_open_is_not_waited_for(
    then, status, out, *, heard
):
    begun = time.monotonic()
    done = process.run(
        [sys.executable, "-c", HOLDER + then],
        seconds=1,
        each_error_line=(lambda _line: None) if heard else None,
    )
    assert time.monotonic() - begun < 20
    assert (done.status, done.out) == (status, out)


ENDLESS = [sys.executable, "-c", "import os\nwhile True: os.write(1, b'x' * 65536)"]


def test_a_program_that_writes_without_end_is_ended():
    done = process.run(ENDLESS, seconds=60)
    assert (done.status, done.excess) == (None, "wrote more than 10 MB")
    assert len(done.out) <= 2 * process.OUTPUT


def test_why_a_program_was_ended_is_said():
    patience = Patience(silence=60)
    with pytest.raises(InstallationError, match="was ended: wrote more than 10 MB"):
        process.run(ENDLESS, patience=patience)
