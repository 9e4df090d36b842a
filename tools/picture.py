"""Run an installation and a refusal, and draw docs/terminal.svg."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text
from tests.lab import compiler
from tests.lab.driver import FakeDriver, FakeGpu, build, environment
from tests.lab.index import SimulatedIndex
from tests.lab.releases import LINUX, catalog_index
from tests.lab.screen import opened
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import Mapping

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "terminal.svg"
PROGRAM = Path(sys.executable).with_name("gpuinstall")
DRIVER = FakeDriver((FakeGpu(), FakeGpu()), driver="535.183.01", cuda=12020)
COMMANDS = (
    "install torch==2.13.0 numpy scipy --python 3.12",
    "plan --gpu 'GTX 980' --driver 590.44.01",
)
COLUMNS = 108
FRAME = re.compile(r"(?:\r?\x1b\[2K|\x1b\[1A)+")
BAR = re.compile("[━╸╺]|B/s, .* left$|[0-9] k?B of .*B$")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CURSOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")
"""Escape sequences other than colors, which end with m."""
FONT = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


def main() -> None:
    """Run the commands in one folder and draw the final screen."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        compiler.provide(folder / "compiler")
        played = environment(DRIVER, build(folder / "libraries"), folder)
        home = folder / "home"
        (home / "project").mkdir(parents=True)
        with SimulatedIndex(_wheels(folder / "index")) as index:
            variables = {
                **index.environment(),
                "LAB_GPUS": played["LAB_GPUS"],
                "LD_LIBRARY_PATH": played["LD_LIBRARY_PATH"],
                "HOME": str(home),
                "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}",
                "SHELL": "/bin/bash",
                "TERM": "xterm-256color",
                "XDG_CACHE_HOME": str(home / ".cache"),
                "XDG_STATE_HOME": str(home / ".local" / "state"),
                "UV_CACHE_DIR": str(home / ".cache" / "uv"),
            }
            workshop = Workshop(home / "project", folder / "caches", variables)
            drawn = {}
            for command in COMMANDS:
                raw = run(command, workshop.folder, workshop.environment)
                drawn[command] = raw.replace(str(home), "~")
    PICTURE.write_text(draw_picture(drawn), encoding="utf-8")


def draw_picture(drawn: Mapping[str, str]) -> str:
    """Return an SVG of commands and output, without web fonts."""
    console = Console(record=True, width=COLUMNS, file=StringIO())
    for command, raw in drawn.items():
        console.print(Text(f"$ gpuinstall {command}", style="bold"))
        console.print(Text.from_ansi(render_final_screen(raw)))
        console.print()
    template = FONT.sub("", CONSOLE_SVG_FORMAT)
    return console.export_svg(
        title="gpuinstall", code_format=template, unique_id="gpuinstall"
    )


def run(
    command: str,
    folder: Path,
    variables: Mapping[str, str],
) -> str:
    """Run a command in a terminal and return its output."""
    words = [str(PROGRAM), *shlex.split(command)]
    hidden = {"COLUMNS", "NO_COLOR", "FORCE_COLOR"}
    shown = {name: value for name, value in variables.items() if name not in hidden}
    with opened(COLUMNS, lines=40) as (terminal, raw):
        running = subprocess.Popen(
            words,
            cwd=folder,
            env=shown,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        running.wait()
    return raw.decode()


def render_final_screen(raw: str) -> str:
    """Return the final screen with its colors."""
    lines = []
    for line in raw.replace("\r\n", "\n").split("\n"):
        last_frame = FRAME.split(line)[-1]
        # Finished progress bars were overwritten.
        if not BAR.search(ESCAPE.sub("", last_frame).lstrip("\r")):
            lines.append(CURSOR.sub("", last_frame).lstrip("\r").rstrip())
    return "\n".join(lines).strip("\n")


def _wheels(folder: Path) -> Path:
    """Create an index with a release of torch and two larger packages."""
    catalog_index(folder, ["2.13.0"], platforms=[LINUX], pythons=["3.12"])
    simple = folder / "simple"
    for name, version, size in (
        ("numpy", "2.3.4", 9_000_000),
        ("scipy", "1.16.3", 24_000_000),
    ):
        for old in simple.glob(f"{name}-*"):
            old.unlink()
        modules: dict[str, str | bytes] = {
            f"{name}/data": os.urandom(size),
            f"{name}/__init__.py": "",
        }
        make_wheel(simple, name, version, modules=modules)
    return folder


if __name__ == "__main__":
    main()
