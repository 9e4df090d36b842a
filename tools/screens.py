"""docs/screens.md: what people see, as it was drawn in terminals; ``python -m tools.screens`` runs it and writes it.

Two of the screens are also a picture, docs/terminal.svg, for README.md and the first page of the site.
"""

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
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.lab.driver import FakeDriver, FakeGpu, build, environment
from tests.lab.index import StandInIndex
from tests.lab.releases import LINUX, catalog_index
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.lab.host import Answer

PAGE = Path(__file__).resolve().parent.parent / "docs" / "screens.md"
PICTURE = PAGE.with_name("terminal.svg")
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
BAR = re.compile("[━╸╺]|B/s, .* left$|[0-9] k?B of .*B$")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CURSOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")
"""All escapes but those of colours, which end with m."""
FONT = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


class Scene(NamedTuple):
    """Where screens are drawn: a folder with its variables, and the index that serves it."""

    workshop: Workshop
    sources: StandInIndex

    def site(self, pattern: str) -> Path:
        """Return a file among the environment's packages."""
        libraries = self.workshop.folder / ".venv" / "lib"
        return next(libraries.glob(f"python*/site-packages/{pattern}"))


class Screen(NamedTuple):
    """One run: its title, the command, how wide the terminal is (None is a pipe), and what goes before it.

    ``before`` gives the variables that the command has beside the usual ones.
    """

    title: str
    words: str
    columns: int | None = 80
    before: Callable[[Scene], Mapping[str, str]] = lambda _scene: {}


def added_by_pip(scene: Scene) -> Mapping[str, str]:
    """Add a package with the environment's own pip."""
    return _by_pip(scene, "cowsay")


def replaced_by_pip(scene: Scene) -> Mapping[str, str]:
    """Give the environment the torch of the default index, as a program's requirements do."""
    run(Screen("", "sync --replace"), scene.workshop.folder, scene.workshop.environment)
    return _by_pip(scene, "torch==2.13.0")


def without_a_file(scene: Scene) -> Mapping[str, str]:
    """Delete a file of torch, and change the index's wheel no more than that."""
    run(Screen("", "sync"), scene.workshop.folder, scene.workshop.environment)
    scene.site("torch/version.py").unlink()
    return {}


def behind_a_wrong_proxy(_scene: Scene) -> Mapping[str, str]:
    """Name a proxy that is not there."""
    return {"HTTP_PROXY": "http://proxy.invalid:3128", "NO_PROXY": ""}


def without_space(scene: Scene) -> Mapping[str, str]:
    """Offer a package that is larger than any disk."""
    make_wheel(scene.sources.folder / "simple", "jupyterlab", "4.5.0")
    serve = scene.sources.default.respond

    def huge(path: str, headers: dict[str, str]) -> Answer:
        answer = serve(path, headers)
        return replace(answer, body=re.sub(rb'("size": \d+)', rb"\g<1>000000000", answer.body))

    scene.sources.default.respond = huge
    return {}


def without_the_torch_index(scene: Scene) -> Mapping[str, str]:
    """Stop the torch index."""
    scene.sources.torch.close()
    return {}


def without_an_index(scene: Scene) -> Mapping[str, str]:
    """Stop the default index too."""
    scene.sources.default.close()
    return {}


def _by_pip(scene: Scene, name: str) -> Mapping[str, str]:
    folder = scene.workshop.folder
    python = folder / ".venv" / "bin" / "python"
    options = ("-q", "--no-deps", "--index-url", scene.sources.default_index)
    subprocess.run(
        [python, "-m", "pip", "install", *options, name],
        env={**scene.workshop.environment, "PIP_CONFIG_FILE": os.devnull},
        cwd=folder,
        check=True,
    )
    return {}


FIRST = "install torch==2.13.0 numpy scipy --python 3.12"
REFUSAL = "install --gpu 'GTX 980' --driver 590.44.01"
SCREENS = (
    Screen("A first run", FIRST),
    Screen("A second run", "install"),
    Screen("A package is added", "install rich"),
    Screen("What an upgrade would do", "install --upgrade torch --dry-run", 120),
    Screen("An upgrade, 60 columns", "install --upgrade torch", 60),
    Screen("A package is removed, in a pipe or a log file", "remove rich", None),
    Screen("pip has added a package", "install rich", before=added_by_pip),
    Screen("pip has replaced torch", "run python train.py", before=replaced_by_pip),
    Screen("A broken environment", "doctor", before=without_a_file),
    Screen("It is repaired", "doctor --fix --yes"),
    Screen("A refusal", REFUSAL),
    Screen("Requirements that conflict", "install 'numpy<2.3' 'scipy>1.17'"),
    Screen("A name is mistyped", "install scpy"),
    Screen("The disk is full", "install jupyterlab", before=without_space),
    Screen("The proxy is wrong", "install rich", before=behind_a_wrong_proxy),
    Screen(
        "The torch index is down", "lock --only torch --upgrade", before=without_the_torch_index
    ),
    Screen("No index answers", "install rich", before=without_an_index),
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
            home = folder / "home"
            variables = {
                **index.environment(),
                "LAB_GPUS": played["LAB_GPUS"],
                "LD_LIBRARY_PATH": played["LD_LIBRARY_PATH"],
                "HOME": str(home),
                "SHELL": "/bin/bash",
                "TERM": "xterm-256color",
                "XDG_CACHE_HOME": str(home / ".cache"),
                "XDG_STATE_HOME": str(home / ".local" / "state"),
                "UV_CACHE_DIR": str(home / ".cache" / "uv"),
            }
            workshop = Workshop(home / "project", folder / "caches", variables)
            scene = Scene(workshop, index)
            drawn = {screen: draw(screen, scene).replace(str(home), "~") for screen in SCREENS}
    PAGE.write_text(page(drawn), encoding="utf-8")
    PICTURE.write_text(picture(drawn), encoding="utf-8")


def draw(screen: Screen, scene: Scene) -> str:
    """Run a screen in its scene."""
    variables = {**scene.workshop.environment, **screen.before(scene)}
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        variables.pop(name, None)
    return run(screen, scene.workshop.folder, variables)


def picture(drawn: Mapping[Screen, str]) -> str:
    """Write an installation and a refusal as one SVG, which asks no other host for a font."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=80, file=StringIO())
    for screen, raw in drawn.items():
        if screen.words in {FIRST, REFUSAL}:
            console.print(Text(f"$ gpuinstall {screen.words}", style="bold"), soft_wrap=True)
            console.print(Text.from_ansi(settled(raw, CURSOR)), soft_wrap=True)
            console.print()
    template = FONT.sub("", CONSOLE_SVG_FORMAT)
    return console.export_svg(title="gpuinstall", code_format=template, unique_id="gpuinstall")


def page(drawn: Mapping[Screen, str]) -> str:
    """Write the page; of the first run also what was drawn in the middle of the download."""
    shown = [HEAD]
    for screen, raw in drawn.items():
        shown.append(f"## {screen.title}\n\n{_block(screen.words, settled(raw))}")
        if screen.words == FIRST:
            shown.append(f"In the middle of it:\n\n{_block('', middle(raw))}")
    return "\n".join(shown)


def run(screen: Screen, folder: Path, variables: Mapping[str, str]) -> str:
    """Run a command in a terminal of so many columns, or in a pipe; return all that it wrote."""
    words = [str(PROGRAM), *shlex.split(screen.words)]
    if screen.columns is None:
        done = subprocess.run(
            words,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, screen.columns, 0, 0))
    running = subprocess.Popen(
        words, cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs
    )
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


def settled(raw: str, escapes: re.Pattern[str] = ESCAPE) -> str:
    """Return what stays on the screen, without some ``escapes``."""
    lines = []
    for line in raw.replace("\r\n", "\n").split("\n"):
        last_frame = FRAME.split(line)[-1]
        # A bar was drawn over at the end.
        if not BAR.search(ESCAPE.sub("", last_frame).lstrip("\r")):
            lines.append(escapes.sub("", last_frame).lstrip("\r").rstrip())
    return "\n".join(lines).strip("\n")


def middle(raw: str) -> str:
    """Return the bars of the fullest moment of a download."""
    fullest = ""
    for frame in FRAME.split(raw.replace("\r\n", "\n")):
        text = ESCAPE.sub("", frame).strip("\n")
        if "Download" in text and " left" in text:
            fullest = max(fullest, text, key=len)
    return fullest


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
        modules: dict[str, str | bytes] = {
            f"{name}/data": os.urandom(size),
            f"{name}/__init__.py": "",
        }
        make_wheel(simple, name, version, modules=modules)
    make_wheel(simple, "rich", "14.2.0", requires=["markdown-it-py"])
    make_wheel(simple, "markdown-it-py", "4.3.0")
    make_wheel(simple, "cowsay", "6.1")
    make_wheel(simple, "torch", "2.13.0")
    return folder


if __name__ == "__main__":
    main()
