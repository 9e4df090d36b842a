import signal
import subprocess
import sys
from io import BytesIO

import pytest

from gpuinstall.base import process
from gpuinstall.base.interruption import call_with_timeout

SLEEP = "[sys.executable, '-c', 'import time; time.sleep(60)']"
PREFACE = (
    "import os, signal, sys, threading, time\n"
    "from gpuinstall.base import interruption, process\ninterruption.install_handlers()\n"
    # A signal just before a long sleep would be noticed only after it.
    "def wait():\n for _ in range(6000): time.sleep(0.01)\n"
)
pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows lacks these signals"
)


def start(code):
    """Run code after ``install_handlers``, up to its first line of output."""
    running = subprocess.Popen(
        [sys.executable, "-c", PREFACE + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    return running


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_termination_signals_raise_keyboard_interrupt(name):
    running = start(
        "try:\n print('ready', flush=True)\n wait()\nexcept KeyboardInterrupt:\n sys.exit(130)"
    )
    running.send_signal(signal.Signals[name])
    running.communicate(timeout=30)
    assert running.returncode == 130


LATER = {
    "gpuinstall.cli.main": "",
    "click": "",
    "gpuinstall.cli.machine": "error: interrupted\n",
}
"""The module loaded after the handlers, and the message of an interrupt."""
LOADING = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "{module}":
            os.kill(os.getpid(), signal.{number})
sys.meta_path.insert(0, Finder())
sys.argv = ["gpuinstall", "probe"]
from gpuinstall.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("module", "number", "said"),
    [
        ("gpuinstall.base.interruption", "SIGINT", ""),
        *((module, "SIGINT", said) for module, said in LATER.items()),
        *((module, "SIGTERM", said) for module, said in LATER.items()),
    ],
)
def test_interrupt_during_imports_prints_no_traceback(module, said, number):
    code = LOADING.format(module=module, number=number)

    done = process.run([sys.executable, "-c", code])

    assert (done.status, done.err) == (130, said)


def test_interrupt_that_an_import_loses_ends_the_program():
    """Python ignores exceptions in the callbacks of its import locks."""
    code = LOADING.format(module="click", number="SIGINT")
    kill = "os.kill(os.getpid(), signal.SIGINT)"
    lost = f"\n            try: {kill}\n            except KeyboardInterrupt: pass"
    done = process.run([sys.executable, "-c", code.replace(kill, lost)])
    assert (done.status, done.err) == (130, "")


def test_interrupt_terminates_subprocesses_of_other_threads():
    code = f"""
waiting = threading.Thread(target=lambda: print(process.run({SLEEP}).status))
waiting.start()
while not interruption._RunState.programs: time.sleep(0.01)
try:
    print('ready', flush=True)
    wait()
except KeyboardInterrupt:
    waiting.join()
"""
    running = start(code)
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=30)
    assert out == f"{-signal.SIGKILL}\n"


def test_deferred_interrupt_is_raised_after_the_block():
    code = """
try:
    with interruption.defer_interrupts():
        print('ready', flush=True)
        while not interruption._RunState.interrupted: time.sleep(0.01)
        print('finished', flush=True)
    print('too far')
except KeyboardInterrupt:
    print('interrupted')
"""
    running = start(code)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=30)
    assert out == "finished\ninterrupted\n"


def test_signal_ignored_by_nohup_is_ignored():
    code = f"{PREFACE}print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    done = process.run(["nohup", sys.executable, "-c", code])
    assert done.out == "True\n"


def test_call_within_timeout_returns_or_raises():
    answer = BytesIO()
    assert call_with_timeout(5, lambda: answer) is answer
    assert not answer.closed
    with pytest.raises(ZeroDivisionError):
        call_with_timeout(5, lambda: BytesIO(bytes(1 // 0)))


def test_waiting_for_a_call_can_be_interrupted():
    running = start(
        "print('ready', flush=True)\ninterruption.call_with_timeout(60, lambda: time.sleep(60))"
    )
    running.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in running.communicate(timeout=30)[1]
