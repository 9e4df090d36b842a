"""The gpuinstall command line in a fork of a process that imported it.

Imports take longer than most commands. Each command is a separate process with its own
arguments, folder, environment, and streams. Tests of the start (PYTHONPATH, LD_PRELOAD,
a module in the working folder, a signal) use ``tests.frozen.GPUINSTALL`` instead.
``python -m tests.lab.forked FD`` is the process that forks, with a socket.
"""

import ast
import atexit
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, NoReturn

from gpuinstall.base.process import Finished
from tests import frozen
from tests.lab import answers, disk, own_gpus, windows
from tests.lab.clone import ROOT
from tests.lab.elsewhere import overlay

STUCK_S = 120.0
"""The time limit of a command in seconds, on a busy machine."""
APART = (".kernels", "_child", "pytest_plugin")
"""Variables of other programs' loaders."""
COMMAND = "lock -q torch==2.14.1 --offline"
"""A command that compiles many regular expressions."""
LATE = (
    "filecmp",
    "html.parser",
    "http.server",
    "netrc",
    "packaging.pylock",
    "packaging.requirements",
    "platformdirs",
    "requests",
    "tqdm",
    "uv",
)
"""Modules of other packages that commands import late."""


def gpuinstall(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str = "",
    seconds: float = STUCK_S,
) -> Finished:
    """Run a command on the frozen catalog, with ``text`` on stdin.

    A command that exceeds the time limit is killed and has no status.
    """
    order = {
        "argv": arguments,
        "env": dict(os.environ if env is None else env),
        "cwd": str(cwd or Path.cwd()),
    }
    with (
        _file(json.dumps(order)) as said,
        _file(text) as given,
        _file() as out,
        _file() as err,
    ):
        status = _status([file.fileno() for file in (said, given, out, err)], seconds)
        return Finished(arguments, status, *(_text(file) for file in (out, err)))


def _status(files: list[int], seconds: float) -> int | None:
    channel = _forker()
    socket.send_fds(channel, [b"."], files)
    child = _number(channel)
    channel.settimeout(seconds)
    try:
        return _number(channel)
    except TimeoutError:
        os.kill(child, signal.SIGKILL)
        _number(channel)
        return None
    finally:
        channel.settimeout(None)


@cache
def _forker() -> socket.socket:
    """Start the process that forks. It ends with this process."""
    ours, theirs = socket.socketpair()
    with theirs:
        words = [sys.executable, "-m", "tests.lab.forked", str(theirs.fileno())]
        running = subprocess.Popen(
            words, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )

    def end():
        ours.close()
        running.wait()

    atexit.register(end)
    return ours


def _file(text: str = "") -> IO[bytes]:
    file = TemporaryFile()  # noqa: SIM115  the caller closes it
    file.write(text.encode())
    file.seek(0)
    return file


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _number(channel: socket.socket) -> int:
    return int.from_bytes(
        channel.recv(4, socket.MSG_WAITALL), sys.byteorder, signed=True
    )


def serve(channel: socket.socket):
    """Fork for each request, and send the child's PID and status."""
    while files := socket.recv_fds(channel, 1, 4)[1]:
        child = os.fork()
        if child == 0:
            channel.close()
            become(*files)
        channel.send(child.to_bytes(4, sys.byteorder))
        for file in files:
            os.close(file)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        channel.send(status.to_bytes(4, sys.byteorder, signed=True))


def become(said: int, *streams: int) -> NoReturn:
    """Run the requested command in the forked child process."""
    from gpuinstall.__main__ import main

    with open(said, encoding="utf-8") as file:
        order = json.load(file)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.argv[1:] = order["argv"]
    overlay()
    windows.play()
    answers.play()
    main()


def prepare():
    """Import every module that gpuinstall's commands load."""
    import gpuinstall
    from gpuinstall.machine import children

    modules = [one.name for one in walk_packages(gpuinstall.__path__, "gpuinstall.")]
    for name in (*modules, *LATE):
        if not any(part in name for part in APART):
            import_module(name)
    # Fake drivers respond slowly on a busy machine.
    children.NOTICE_AFTER = STUCK_S
    frozen.freeze()
    disk.play()
    own_gpus.play()
    read_data()
    compile_patterns()
    gc.freeze()


def read_data():
    """Read the shipped data once for all commands."""
    from gpuinstall.catalog.failures.classify import classify
    from gpuinstall.catalog.gpus import find_gpu

    for name, module in tuple(sys.modules.items()):
        if name.startswith("gpuinstall."):
            for reader in vars(module).values():
                is_reader = getattr(reader, "__name__", "").startswith("load_")
                if is_reader and hasattr(reader, "cache_clear"):
                    reader()
    find_gpu("RTX 4090")
    classify("RuntimeError: CUDA error: no kernel image is available for execution")


def compile_patterns():
    """Compile the regular expressions of a command for all commands."""
    from gpuinstall.cli.main import run_command_line

    reading, writing = os.pipe()
    if os.fork() == 0:
        with Path(os.devnull).open("r+") as nothing, TemporaryDirectory() as folder:
            for number in range(3):
                os.dup2(nothing.fileno(), number)
            os.chdir(folder)
            os.environ.update(HOME=folder, XDG_CACHE_HOME=folder)
            run_command_line(COMMAND.split())
        patterns = [(one, flags) for _, one, flags in vars(re)["_cache"]]
        os.write(writing, repr(patterns).encode())
        os._exit(0)
    os.close(writing)
    vars(re)["_MAXCACHE"] = 2000
    with os.fdopen(reading) as told:
        for pattern, flags in ast.literal_eval(told.read()):
            re.compile(pattern, flags)


if __name__ == "__main__":
    prepare()
    serve(socket.socket(fileno=int(sys.argv[1])))
