"""Hooks that are killed as they are written: every line of the user's stays."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

from gpuinstall.base.marked_block import BrokenBlockError, without_block
from tests.frozen import GPUINSTALL
from tests.lab.workshop import Workshop
from tests.torture.bounded import Case, judged
from tests.torture.place import Place, gpuinstall

PIP = "[global]\ntimeout = 20\nindex-url = https://user:secret@index.example/simple\n"
UV = '# mine\nnative-tls = false\n[[index]]\nurl = "https://user:secret@index.example/simple"\n'
FILES = {
    "pip": {
        "plain": PIP,
        "of Windows": PIP.replace("\n", "\r\n"),
        "without a last line end": PIP.rstrip(),
    },
    "uv": {
        "plain": UV,
        "of Windows": UV.replace("\n", "\r\n"),
    },
}
MODE = 0o600


def hooks(place: Place, times: int) -> Iterator[Case]:
    """Kill a hook at a random moment, then take it out again."""
    chance = random.Random(3)
    cases = [(tool, name) for tool, files in FILES.items() for name in files]
    with place.served() as (_, served):
        settings = served.folder.parent / "settings"
        variables = {
            name: value for name, value in served.variables.items() if name != "PIP_CONFIG_FILE"
        }
        here = replace(served, variables={**variables, "XDG_CONFIG_HOME": str(settings)})
        usual = gpuinstall(here, "hook", "uv")
        yield judged("a hook that is let through", usual, {0})
        gpuinstall(here, "hook", "uv", "--remove")
        for tool, name in islice(cycle(cases), times):
            file = settings / tool / ("pip.conf" if tool == "pip" else "uv.toml")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(FILES[tool][name].encode())
            file.chmod(MODE)
            running = _start(here, tool)
            expected = FILES[tool][name]
            time.sleep(chance.uniform(usual.seconds / 2, usual.seconds))
            running.send_signal(signal.SIGKILL)
            running.wait()
            wrong = _wrong(file, expected)
            ended = gpuinstall(here, "hook", tool, "--remove")
            after = file.read_bytes().decode()
            wrong = wrong or ("" if after == expected else f"in the end the file is {after!r}")
            yield judged(f"{tool}'s file {name}", ended, {0}, wrong)


def _start(here: Workshop, tool: str) -> subprocess.Popen[bytes]:
    words = [*GPUINSTALL, "hook", tool]
    return subprocess.Popen(
        words,
        env=here.environment,
        cwd=here.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _wrong(file: Path, expected: str) -> str:
    """Say how the user's part of a file, or the mode of what lies there, is not as it was."""
    for path in (file, *file.parent.glob(".*")):
        mode = path.stat().st_mode & 0o777
        if mode != MODE:
            return f"{path.name} has the mode {mode:o}"
    try:
        own = without_block(file.read_bytes().decode())
    except BrokenBlockError as error:
        return f"the hook is half written: {error}"
    return "" if own == expected else f"the user's lines are {own!r}"
