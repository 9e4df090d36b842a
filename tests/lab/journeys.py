"""The life of one folder, step by step: what is done, what was there before and what after, and the output."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuinstall import process, uv
from gpuinstall.facts.pythons import find_python
from tests.lab.wheels import make_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from gpuinstall.process import Finished
    from tests.lab.index import StandInIndex
    from tests.lab.workshop import Workshop

FIRST, OTHER = "3.12", "3.13"
"""The Pythons of the folder."""
PACKAGES = ("torch", "torchvision", "numpy", "rich", "cowsay", "timm", "mine")
"""Those whose versions are shown."""
LINES = (
    "+ ",
    "- ",
    "~ ",
    "Project",
    "Changed",
    "Merged",
    "Successfully installed",
    "warning: cu",
    "error:",
)
"""How the lines of a command's output begin that are shown."""


@dataclass(frozen=True)
class Scene:
    """A folder, and the index that it uses."""

    workshop: Workshop
    index: StandInIndex

    @property
    def folder(self) -> Path:
        """Where the command runs."""
        return self.workshop.folder

    @property
    def python(self) -> Path:
        """The folder's own Python."""
        return self.folder / ".venv" / "bin" / "python"

    def at(self, folder: str) -> Scene:
        """Return the same in another folder."""
        path = self.folder.with_name(folder)
        return replace(self, workshop=replace(self.workshop, folder=path))

    def with_variables(self, **variables: str) -> Scene:
        """Return the same with further variables."""
        both = {**self.workshop.variables, **variables}
        return replace(self, workshop=replace(self.workshop, variables=both))

    def release(self, name: str, version: str, *requires: str) -> None:
        """Let a new version appear; what was cached of the index is out of date."""
        make_wheel(self.index.folder / "simple", name, version, requires=requires)
        shutil.rmtree(self.workshop.caches, ignore_errors=True)

    def run(self, *words: str | Path) -> None:
        """Run another program in the folder."""
        done = process.run([*words], env=self.workshop.environment, cwd=self.folder)
        assert done.ok, done.err


def _do_nothing(_scene: Scene) -> None:
    pass


def _run(scene: Scene, words: tuple[str, ...]) -> Finished:
    return scene.workshop.run(*words)


@dataclass(frozen=True)
class Journey:
    """One step."""

    title: str
    words: str
    """The command line after ``gpuinstall``, or all of it if another program is run."""
    before: Callable[[Scene], None] = _do_nothing
    run: Callable[[Scene, tuple[str, ...]], Finished] = _run
    folder: str = "project"
    is_ours: bool = True

    @property
    def command(self) -> str:
        """The command line as a person types it."""
        return f"gpuinstall {self.words}" if self.is_ours else self.words


@dataclass(frozen=True)
class Row:
    """What became of a step."""

    title: str
    command: str
    before: str
    after: str
    output: str
    status: int | None

    def __str__(self) -> str:
        cells = [
            self.title,
            f"`{self.command}`",
            self.before,
            self.after,
            self.output,
            str(self.status),
        ]
        return f"| {' | '.join(cells)} |"


def travel(scene: Scene, journeys: Iterable[Journey]) -> Iterator[Row]:
    """Take every step, one after the other."""
    for journey in journeys:
        here = scene.at(journey.folder)
        journey.before(here)
        before = _state(here.folder)
        words = shlex.split(journey.words) if journey.is_ours else [journey.words]
        done = journey.run(here, tuple(words))
        yield Row(
            title=journey.title,
            command=journey.command,
            before=before,
            after=_state(here.folder),
            output=_output(done, here.folder),
            status=done.status,
        )


def _state(folder: Path) -> str:
    """Return what the environment holds, and which locks lie there."""
    targets = sorted(path.name.split(".")[1] for path in folder.glob("pylock.*"))
    locks = f"; locks: {', '.join(targets)}" if targets else ""
    python = next((folder / ".venv").glob("lib/python*"), None)
    if python is None:
        return f"nothing{locks}"
    versions = {}
    for record in python.glob("site-packages/*.dist-info"):
        package, version = record.stem.split("-", 1)
        versions[package] = version
    parts = [f"{package} {versions[package]}" for package in PACKAGES if package in versions]
    others = len(versions) - len(parts)
    packages = ", ".join(parts)
    if others:
        packages += f" and {others} more"
    return f"{packages}, Python {python.name.removeprefix('python')}{locks}"


def _output(done: Finished, folder: Path) -> str:
    """Return the changes that a command wrote, or its error, as a cell of a table."""
    lines = []
    for line in [*done.err.splitlines(), *done.out.splitlines()]:
        text = re.sub(r"^(Changes?)?\s+", "", line)
        if text.startswith(LINES):
            lines.append(re.sub(r" {2,}", " ", text))
    cell = "<br>".join(lines) or "nothing changes"
    return cell.replace(str(folder), f"~/{folder.name}").replace("|", "\\|")


def _clone(scene: Scene, words: tuple[str, ...]) -> Finished:
    """A colleague clones the folder, without its environment, and syncs; the folder becomes the clone."""
    shutil.rmtree(scene.folder / ".venv")
    shutil.rmtree(scene.folder / ".venv.gpuinstall", ignore_errors=True)
    return scene.workshop.run(*words)


def _interrupted(scene: Scene, words: tuple[str, ...]) -> Finished:
    """Press Ctrl-C while the new environment is being built."""
    work = scene.folder / ".venv.gpuinstall"
    running = scene.workshop.start(*words)
    while running.poll() is None and not any(work.glob("staging-*/bin")):
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate()
    return process.Finished(words, running.returncode, out, err)


def _by_hand(scene: Scene) -> None:
    scene.run(uv.uv(), "pip", "install", "--python", scene.python, "cowsay")


def _of_others(scene: Scene) -> None:
    """An application has made an environment of its own."""
    scene.folder.mkdir()
    python = find_python(FIRST)
    assert python
    scene.run(uv.uv(), "venv", "--quiet", "--no-project", "--python", python, ".venv")
    _by_hand(scene)


def _undone_by_hand(scene: Scene) -> None:
    scene.run(uv.uv(), "pip", "uninstall", "--python", scene.python, "cowsay")


def _released(scene: Scene) -> None:
    scene.release("numpy", "2.4.0")
    scene.release("rich", "14.3.0", "markdown")


def _unreachable(scene: Scene, words: tuple[str, ...]) -> Finished:
    """The mirror does not answer: at its address nothing listens."""
    unreachable = scene.with_variables(
        GPUINSTALL_TORCH_INDEX="http://127.0.0.1:9/whl",
        UV_DEFAULT_INDEX="http://127.0.0.1:9/simple",
    )
    return unreachable.workshop.run(*words)


def _script(scene: Scene) -> None:
    head = f'# requires-python = "=={FIRST}.*"\n# dependencies = ["torch", "cowsay"]'
    text = f"# /// script\n{head}\n# ///\nimport cowsay, torch\n"
    (scene.folder / "train.py").write_text(text, encoding="utf-8")


def _then_plain_uv(scene: Scene, words: tuple[str, ...]) -> Finished:
    """Install torch by uv alone, after the command."""
    done = scene.workshop.run(*words)
    scene.run(uv.uv(), "pip", "install", "torch")
    return done


JOURNEYS = (
    Journey("first install", f"install torch==2.14.1 numpy --python {FIRST}"),
    Journey("add", "install rich"),
    Journey("upgrade one", "install --upgrade-package numpy", _released),
    Journey("upgrade", "install --upgrade"),
    Journey("upgrade, nothing to do", "install --upgrade-package numpy"),
    Journey("rollback", "install --rollback"),
    Journey("remove", "remove rich"),
    Journey("other backend", "install --backend cpu"),
    Journey("lock set grows", "lock --target cu126 --target cpu --target cpu-windows-x86_64"),
    Journey("colleague's sync", "sync --target cu126", run=_clone),
    Journey("hand-changed", "install", _by_hand),
    Journey("other Python", f"install --python {OTHER}", _undone_by_hand),
    Journey("interrupted", "install cowsay", run=_interrupted),
    Journey("offline", "install --offline"),
    Journey("mirror down", "install --upgrade", run=_unreachable),
    Journey(
        "foreign environment", "install --into torch==2.14.1 numpy", _of_others, folder="theirs"
    ),
    Journey("a script", "run train.py", _script),
    Journey(
        "plain uv with a hook",
        "hook uv --project",
        before=_of_others,
        run=_then_plain_uv,
        folder="hooked",
    ),
    Journey("remove the environment", "env remove --yes"),
)
