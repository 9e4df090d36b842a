"""Share a fake driver's results among the commands of a workshop.

Commands query the driver in child processes, which take longer to start than a plan.
The first command that needs a result stores it. Commands that Python starts query the
driver themselves, and a driver that hangs, crashes, or counts calls is queried each
time.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.process import Finished
from gpuinstall.machine.children import run_children

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuinstall.machine.children import Command

FOLDER = "LAB_ANSWERS"
"""The variable with the folder of stored results."""
LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")
READ = ("CUDA_", "NVIDIA_", "LAB_", "LD_PRELOAD")
"""Prefixes of variables that a fake driver or its loader reads."""
OF_ONE_TEST = ("LAB_ANSWERS", "LAB_GPUS", "LAB_MACHINE", "LAB_VERDICT")


def play():
    """Use stored driver results if an environment variable is set."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    from gpuinstall.machine import source
    from gpuinstall.machine.nvidia import libraries, preflight

    for module in (source, libraries, preflight):
        vars(module)["run_children"] = partial(answers, Path(folder))


def answers(
    folder: Path,
    commands: Sequence[Command],
    seconds: float,
    waiting: Callable[[], None] | None = None,
) -> tuple[Finished, ...]:
    """Return the results of commands, and run commands without one."""
    files = [folder / _name(*command) for command in commands]
    known = {file: _read(file) for file in files if file.exists()}
    rest = [number for number, file in enumerate(files) if file not in known]
    ended = run_children([commands[number] for number in rest], seconds, waiting)
    for number, finished in zip(rest, ended, strict=True):
        known[files[number]] = finished
        if finished.status == 0 and _is_steady(commands[number][1]):
            _write(files[number], finished)
    return tuple(known[file] for file in files)


def _name(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the file name for a result, from everything it depends on."""
    libraries = []
    for folder in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        for library in LIBRARIES:
            path = Path(folder, library)
            if path.exists():
                libraries.append((str(path), path.stat().st_mtime_ns))
    variables = sorted(
        (name, value)
        for name, value in environment.items()
        if name.startswith(READ) and name not in OF_ONE_TEST
    )
    facts = (list(words), libraries, variables, _driver(environment))
    return f"{zlib.crc32(repr(facts).encode()):08x}"


def _driver(environment: Mapping[str, str]) -> str:
    file = environment.get("LAB_GPUS")
    return Path(file).read_text("utf-8") if file else ""


def _is_steady(environment: Mapping[str, str]) -> bool:
    file = Path(environment.get("LAB_GPUS", ""))
    counts = list(file.parent.glob(f"{file.name}.*"))
    return not counts and not re.search("hang_s=[1-9]", _driver(environment))


def _read(file: Path) -> Finished:
    words, *rest = json.loads(file.read_text("utf-8"))
    return Finished(tuple(words), *rest)


def _write(file: Path, finished: Finished):
    # Commands run in parallel.
    own = file.with_suffix(f".{os.getpid()}")
    own.write_text(json.dumps(finished), "utf-8")
    own.replace(file)
