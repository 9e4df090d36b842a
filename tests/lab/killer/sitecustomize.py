"""Kills a node's process as soon as a file appears: LAB_KILL_WHEN is a pattern for glob."""

import glob
import os
import signal
import sys
import threading
import time


def _wait(pattern: str):
    while not glob.glob(pattern):  # noqa: PTH207  nothing is imported that Python has not
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


if "node" in sys.orig_argv and os.environ.get("LAB_KILL_WHEN"):
    threading.Thread(target=_wait, args=(os.environ["LAB_KILL_WHEN"],), daemon=True).start()
