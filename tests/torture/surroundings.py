"""What lies around a run: signals, full disks, environments of others, remotes and clocks."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice, product
from pathlib import Path

from gpuinstall.base import process, uv
from tests.frozen import GPUINSTALL
from tests.hostile.test_surroundings import small_disk
from tests.lab.clone import ROOT
from tests.lab.workshop import Workshop
from tests.torture.bounded import Case, Peak, highest, judged, run
from tests.torture.deaths import LABELLED, VERSIONS
from tests.torture.place import Place, gpuinstall, held_torch

ENDED_S = 20.0
"""What a run may take to end after a signal."""
SIZES = ("0", "4k", "16k", "64k", "256k")
COMMANDS = (
    "plan",
    "probe",
    "lock --target cpu",
    "install torch==2.14.1",
    "install --dry-run",
    "doctor",
    "verify",
)
NEVER = "import time\nwhile True: time.sleep(1)\n"
CHILD = (
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(90)\n    os._exit(0)\n"
)
STARTS = {
    "sleeps": NEVER,
    "is busy": "while True: pass\n",
    "writes without end": "import os\nwhile True: os.write(1, b'x' * 65536)\n",
    "complains without end": "import os\nwhile True: os.write(2, b'x' * 65536)\n",
    "leaves a child": CHILD,
    "leaves a child and sleeps": CHILD + NEVER,
    "ends at once": "import os\nos._exit(0)\n",
    "kills itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "kills its parent's group": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n",
    "answers for us": "print('{}')\nimport os\nos._exit(0)\n",
    "answers with a list": "print('[]')\nimport sys; sys.stdout.flush()\nimport os\nos._exit(0)\n",
    "sleeps for uv alone": "import os\nif b'uv' in open(f'/proc/{os.getppid()}/cmdline', 'rb').read():\n    "
    "import time\n    time.sleep(999)\n",
}
"""What the ``sitecustomize`` of an environment does that others made."""


def signals(place: Place, times: int) -> Iterator[Case]:
    """End runs by signals at random moments, the parent alone or its whole group; none is swallowed."""
    chance = random.Random(2)
    with place.served() as (_, here):
        usual = gpuinstall(here, "install", f"torch=={VERSIONS[0]}")
        usual = gpuinstall(here, "install", f"torch=={VERSIONS[1]}")
        yield judged("a run that is let through", usual, {0})
        for position in range(times):
            number = chance.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
            group = bool(position % 2)
            yield _signalled(
                here,
                VERSIONS[position % 2],
                number,
                chance.uniform(0.05, usual.seconds),
                group=group,
            )


def _signalled(
    here: Workshop, version: str, number: signal.Signals, moment: float, *, group: bool
) -> Case:
    running = subprocess.Popen(
        [*GPUINSTALL, "install", f"torch=={version}"],
        env=here.environment,
        cwd=here.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(moment)
    peak, sent, faults = highest(running.pid), time.monotonic(), list[str]()
    early = running.poll() is not None
    with suppress(ProcessLookupError):
        (os.killpg if group else os.kill)(running.pid, number)
    try:
        status = running.wait(ENDED_S)
        if not early and status not in {0, 130, -number}:
            faults.append(f"status {status}")
    except subprocess.TimeoutExpired:
        faults.append("it was swallowed")
    took = time.monotonic() - sent
    until = time.monotonic() + ENDED_S / 4
    while (left := _left(running.pid)) and time.monotonic() < until:
        time.sleep(0.1)
    faults += [f"{left} still ran"] if left else []
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    held = held_torch(here)
    faults += [] if held in LABELLED else [f"torch is {held}"]
    name = f"{number.name} to {'the group' if group else 'the parent'} after {moment:.2f} s"
    return Case(name, ", ".join(faults), took, peak)


def _left(session: int) -> list[str]:
    """The programs of a session that have not ended."""
    names = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().partition(" (")[2].rpartition(") ")
            state, _, _, member = rest.split()[:4]
            names += [name] if int(member) == session and state != "Z" else []
    return names


def temporary(place: Place, count: int) -> Iterator[Case]:
    """The folder for temporary files is full, or fills: whoever can do without it does, and the others say it."""
    for size, words in islice(product(SIZES, COMMANDS), count):
        with place.served() as (_, here):
            disk = here.folder.parent / "temporary"
            with small_disk(disk, "4k" if size == "0" else size):
                if size == "0":
                    (disk / "fill").write_bytes(b"x" * 4096)
                full = replace(here, variables={**here.variables, "TMPDIR": str(disk)})
                yield judged(
                    f"{words} with {size}", gpuinstall(full, *words.split()), {0, 2, 3, 4, 5}
                )
    for limit, words in product(
        ("v 150000", "v 300000", "v 600000", "f 0", "f 1", "f 16"), COMMANDS[2:5]
    ):
        with place.served() as (_, here):
            line = f"ulimit -{limit}; exec {' '.join(map(str, GPUINSTALL))} {words}"
            ended = run(["sh", "-c", line], here.environment, here.folder)
            yield judged(
                f"{words} with ulimit -{limit}",
                replace(ended, peak=Peak()),
                {0, 2, 3, 4, 5, -signal.SIGXFSZ},
            )


def environments(place: Place, count: int) -> Iterator[Case]:
    """Put torch into environments of others that do not start, or do not end."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name, code in islice(STARTS.items(), count):
        with place.served() as (_, here):
            process.run(
                [uv.uv(), "venv", "--no-project", "--python", sys.executable, here.folder / "app"]
            )
            (
                here.folder / "app" / "lib" / version / "site-packages" / "sitecustomize.py"
            ).write_text(code)
            for words in (
                "install --into --venv app torch==2.14.1",
                "verify --venv app",
                "doctor --venv app",
            ):
                yield judged(
                    f"{words}: it {name}",
                    gpuinstall(here, *words.split(), seconds=240),
                    {0, 2, 3, 4, 5, 8},
                )


def clocks(place: Place, count: int) -> Iterator[Case]:
    """Files of tomorrow and of long ago, as a clock leaves them that was set back."""
    for days in islice((-20_000, -365, 365, 20_000), count):
        with place.served() as (_, here):
            gpuinstall(here, "install", f"torch=={VERSIONS[0]}")
            moment = time.time() + days * 86_400
            for path in (*here.folder.rglob("*"), *here.caches.rglob("*")):
                with suppress(OSError):
                    os.utime(path, (moment, moment), follow_symlinks=False)
            for words in (
                "install",
                "install torch==2.14.1",
                "sync",
                "lock check",
                "doctor",
                "env list",
                "plan",
            ):
                yield judged(f"{words}, {days} days off", gpuinstall(here, *words.split()), {0})
            held = held_torch(here)
            yield Case(f"torch, {days} days off", "" if held in LABELLED else f"torch is {held}")


def bootstraps(place: Place, count: int) -> Iterator[Case]:
    """Start bootstrap.py in a folder of modules that are called as the standard library's."""
    names = sorted(set(sys.stdlib_module_names) - {"__main__", "sys"})[
        :: max(1, len(sys.stdlib_module_names) // count)
    ]
    for name in islice(names, count):
        with place.served() as (_, here):
            mark = here.folder / "executed"
            shutil.copy(ROOT / "bootstrap.py", here.folder)
            (here.folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
            nowhere = {
                "UV_DEFAULT_INDEX": "http://127.0.0.1:9",
                "GPUINSTALL_UV_MIRROR": "http://127.0.0.1:9",
            }
            env = (
                here.environment
                | nowhere
                | {"HOME": str(here.folder), "XDG_DATA_HOME": str(here.folder / "data")}
            )
            ended = run([sys.executable, "bootstrap.py", "--version"], env, here.folder)
            yield judged(
                f"beside {name}.py", ended, {0, 2, 4}, "it was run" if mark.exists() else ""
            )
