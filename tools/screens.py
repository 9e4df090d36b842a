"""docs/screens.md: what people see, as it was drawn in terminals; ``python -m tools.screens`` runs it and writes it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.lab.driver import FakeDriver, FakeGpu, build, environment
from tests.lab.index import StandInIndex
from tests.lab.releases import LINUX, catalog_index
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).resolve().parent.parent / "docs" / "screens.md"
PROGRAM = Path(sys.executable).with_name("gpuinstall")
PACE_S = 0.008
"""How long the stand-in index waits after each 64 kB, so that there is a download to be seen."""
DRIVER = FakeDriver((FakeGpu(), FakeGpu()), driver="535.183.01", cuda=12020)
HEAD = """\
# Screens

The output of real runs, in terminals of several widths and in a pipe. The index and the driver are stand-ins and the
wheels small, so sizes and times mean nothing. Made by `python -m tools.screens`.
"""
FRAME = re.compile(r"(?:\r?\x1b\[2K|\x1b\[1A)+")
BAR = re.compile("[━╸╺]|B/s, .* left$")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen(NamedTuple):
    """One run: its title, the command, how wide the terminal is; None is a pipe."""

    title: str
    words: str
    columns: int | None = 80


FIRST = "install torch==2.13.0 numpy scipy --python 3.12"
SCREENS = (
    Screen("A first run", FIRST),
    Screen("A second run", "install"),
    Screen("A package is added, 60 columns", "install rich", 60),
    Screen("What an upgrade would do", "install --upgrade torch --dry-run", 120),
    Screen("An upgrade", "install --upgrade torch"),
    Screen("A package is removed, in a pipe or a log file", "remove rich", None),
    Screen("A refusal, 60 columns", "install --gpu 'GTX 980' --driver 590.44.01", 60),
    Screen("A table", "table --gpu 'GTX 1080' --gpu 'RTX 4090' --gpu 'RTX 5090'"),
    Screen("A table, 120 columns", "table", 120),
)


def main() -> None:
    """Run every screen in one folder, one after the other, and write the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        played = environment(DRIVER, build(folder / "libraries"), folder)
        (folder / "home" / "project").mkdir(parents=True)
        with StandInIndex(_wheels(folder / "index")) as index:
            for host in (index.torch, index.r2, index.default):
                host.pace = PACE_S
            own = {**index.environment(), **{key: played[key] for key in ("LAB_GPUS", "LD_LIBRARY_PATH")}}
            home = folder / "home"
            own |= {"HOME": str(home), "SHELL": "/bin/bash", "TERM": "xterm-256color", "NO_COLOR": "1"}
            own |= {"XDG_CACHE_HOME": str(home / ".cache"), "UV_CACHE_DIR": str(home / ".cache" / "uv")}
            own["XDG_STATE_HOME"] = str(home / ".local" / "state")
            workshop = Workshop(home / "project", folder / "caches", own)
            PAGE.write_text(page(workshop).replace(str(home), "~"), encoding="utf-8")


def page(workshop: Workshop) -> str:
    """Write the page; of the first run also what was drawn in the middle of the download."""
    shown = [HEAD]
    for screen in SCREENS:
        raw = run(screen, workshop.folder, workshop.environment)
        shown.append(f"## {screen.title}\n\n{_block(screen.words, settled(raw))}")
        if screen.words == FIRST:
            shown.append(f"In the middle of it:\n\n{_block('', middle(raw))}")
    return "\n".join(shown)


def run(screen: Screen, folder: Path, variables: Mapping[str, str]) -> str:
    """Run a command in a terminal of so many columns, or in a pipe; return all that it wrote."""
    words = [str(PROGRAM), *shlex.split(screen.words)]
    if screen.columns is None:
        both, nothing = subprocess.STDOUT, subprocess.DEVNULL
        done = subprocess.run(
            words, cwd=folder, env=variables, stdin=nothing, stdout=-1, stderr=both, text=True, check=False
        )
        return done.stdout
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, screen.columns, 0, 0))
    running = subprocess.Popen(words, cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    raw = bytearray()
    try:
        while chunk := os.read(ours, 65536):
            raw += chunk
    except OSError:  # Linux says so that nobody writes any more
        pass
    os.close(ours)
    running.wait()
    return raw.decode()


def settled(raw: str) -> str:
    """What stays on the screen: without the bars, each of which was drawn over."""
    lines = [ESCAPE.sub("", FRAME.split(line)[-1]) for line in raw.replace("\r\n", "\n").split("\n")]
    return "\n".join(line.rstrip() for line in lines if not BAR.search(line)).strip("\n")


def middle(raw: str) -> str:
    """The bars of the fullest moment of a download."""
    frames = [ESCAPE.sub("", frame).strip("\n") for frame in FRAME.split(raw.replace("\r\n", "\n"))]
    return max((frame for frame in frames if "Download" in frame and " left" in frame), key=len, default="")


def _block(words: str, text: str) -> str:
    head = f"$ gpuinstall {words}\n" if words else ""
    body = "\n".join(line.rstrip() for line in text.split("\n"))
    return f"```console\n{head}{body}\n```\n"


def _wheels(folder: Path) -> Path:
    """An index with two releases of torch, and a few packages that take a moment to come."""
    catalog_index(folder, ["2.13.0", "2.14.1"], platforms=[LINUX], pythons=["3.12"])
    simple = folder / "simple"
    for name, version, size in (("numpy", "2.3.4", 9_000_000), ("scipy", "1.16.3", 24_000_000)):
        for old in simple.glob(f"{name}-*"):
            old.unlink()
        make_wheel(simple, name, version, modules={f"{name}/data": os.urandom(size), f"{name}/__init__.py": ""})
    make_wheel(simple, "rich", "14.2.0", requires=["markdown-it-py"])
    make_wheel(simple, "markdown-it-py", "4.3.0")
    return folder


if __name__ == "__main__":
    main()
