"""The life of one folder, step by step: what is done, what was there before and what after, and what is said."""

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

    from gpuinstall.process import Finished
    from tests.lab.index import StandInIndex
    from tests.lab.workshop import Workshop

FIRST, OTHER = "3.12", "3.13"
"""The Pythons of the folder."""
SHOWN = ("torch", "torchvision", "numpy", "rich", "cowsay", "timm", "mine")
SAID = ("+ ", "- ", "~ ", "Project", "Changed", "Merged", "Successfully installed", "warning: cu")


@dataclass(frozen=True)
class Scene:
    """Where it happens: a folder, and the index that it asks."""

    workshop: Workshop
    index: StandInIndex

    def at(self, folder: str) -> Scene:
        """The same in another folder."""
        return replace(
            self, workshop=replace(self.workshop, folder=self.workshop.folder.with_name(folder))
        )

    def release(self, name: str, version: str, *requires: str) -> None:
        """Let a new version appear; what was cached of the index is out of date."""
        make_wheel(self.index.folder / "simple", name, version, requires=requires)
        shutil.rmtree(self.workshop.caches, ignore_errors=True)


@dataclass(frozen=True)
class Journey:
    """One step."""

    title: str
    words: str
    """The command line after ``gpuinstall``, or all of it if another program is run."""
    before: Callable[[Scene], None] = lambda _scene: None
    run: Callable[[Scene, tuple[str, ...]], Finished] = lambda scene, words: scene.workshop.run(
        *words
    )
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
    said: str
    status: int | None

    def __str__(self) -> str:
        return f"| {self.title} | `{self.command}` | {self.before} | {self.after} | {self.said} | {self.status} |"


def travel(scene: Scene, journeys: Iterable[Journey]) -> Iterator[Row]:
    """Take every step, one after the other."""
    for journey in journeys:
        here = scene.at(journey.folder)
        journey.before(here)
        before = _state(here.workshop)
        words = shlex.split(journey.words) if journey.is_ours else [journey.words]
        done = journey.run(here, tuple(words))
        after = _state(here.workshop)
        yield Row(journey.title, journey.command, before, after, _told(done, here), done.status)


def _state(workshop: Workshop) -> str:
    """Say what the environment holds, and which locks lie there."""
    locks = sorted(path.name.split(".")[1] for path in workshop.folder.glob("pylock.*"))
    listed = f"; locks: {', '.join(locks)}" if locks else ""
    python = next((workshop.folder / ".venv").glob("lib/python*"), None)
    if python is None:
        return f"nothing{listed}"
    records = (python / "site-packages").glob("*.dist-info")
    held = dict(path.name.removesuffix(".dist-info").split("-", 1) for path in records)
    names = [f"{name} {held[name]}" for name in SHOWN if name in held]
    more = f" and {len(held) - len(names)} more" if len(held) > len(names) else ""
    return f"{', '.join(names)}{more}, Python {python.name.removeprefix('python')}{listed}"


def _told(done: Finished, scene: Scene) -> str:
    """The changes that were said, or the error."""
    lines = [
        re.sub(r"^(Changes?)?\s+", "", line)
        for line in (*done.err.splitlines(), *done.out.splitlines())
    ]
    said = [line for line in lines if line.startswith((*SAID, "error:"))]
    text = "<br>".join(re.sub(r" {2,}", " ", line) for line in said) or "nothing changes"
    return text.replace(str(scene.workshop.folder), f"~/{scene.workshop.folder.name}").replace(
        "|", "\\|"
    )


def _clone(scene: Scene, words: tuple[str, ...]) -> Finished:
    """A colleague clones the folder, without its environment, and syncs; the folder becomes the clone."""
    shutil.rmtree(scene.workshop.folder / ".venv")
    shutil.rmtree(scene.workshop.folder / ".venv.gpuinstall", ignore_errors=True)
    return scene.workshop.run(*words)


def _interrupted(scene: Scene, words: tuple[str, ...]) -> Finished:
    """Press Ctrl-C while the new environment is being built."""
    work = scene.workshop.folder / ".venv.gpuinstall"
    running = scene.workshop.start(*words)
    while running.poll() is None and not any(work.glob("staging-*/bin")):
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate()
    return process.Finished(tuple(words), running.returncode, out, err)


def _by_hand(scene: Scene) -> None:
    python = scene.workshop.folder / ".venv" / "bin" / "python"
    done = process.run(
        [uv.uv(), "pip", "install", "--python", python, "cowsay"], env=scene.workshop.environment
    )
    assert done.ok, done.err


def _of_others(scene: Scene) -> None:
    """An application has made an environment of its own."""
    scene.workshop.folder.mkdir()
    words = [
        str(uv.uv()),
        "venv",
        "--quiet",
        "--no-project",
        "--python",
        str(find_python(FIRST)),
        str(scene.workshop.folder / ".venv"),
    ]
    done = process.run(words, env=scene.workshop.environment)
    assert done.ok, done.err
    _by_hand(scene)


def _undone_by_hand(scene: Scene) -> None:
    python = scene.workshop.folder / ".venv" / "bin" / "python"
    done = process.run(
        [uv.uv(), "pip", "uninstall", "--python", python, "cowsay"], env=scene.workshop.environment
    )
    assert done.ok, done.err


def _released(scene: Scene) -> None:
    scene.release("numpy", "2.4.0")
    scene.release("rich", "14.3.0", "markdown")


def _unreachable(scene: Scene, words: tuple[str, ...]) -> Finished:
    """The mirror does not answer: an address where nobody listens."""
    variables = {**scene.workshop.variables, "GPUINSTALL_TORCH_INDEX": "http://127.0.0.1:9/whl"}
    variables["UV_DEFAULT_INDEX"] = "http://127.0.0.1:9/simple"
    return replace(scene.workshop, variables=variables).run(*words)


def _script(scene: Scene) -> None:
    head = f'# requires-python = "=={FIRST}.*"\n# dependencies = ["torch", "cowsay"]'
    text = f"# /// script\n{head}\n# ///\nimport cowsay, torch\n"
    (scene.workshop.folder / "train.py").write_text(text, encoding="utf-8")


def _then_plain_uv(scene: Scene, words: tuple[str, ...]) -> Finished:
    """Somebody installs torch by uv alone, after the command."""
    done = scene.workshop.run(*words)
    plain = process.run(
        [uv.uv(), "pip", "install", "torch"],
        env=scene.workshop.environment,
        cwd=scene.workshop.folder,
    )
    assert plain.ok, plain.err
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
        "plain uv with a hook", "hook uv --project", _of_others, _then_plain_uv, folder="hooked"
    ),
    Journey("remove the environment", "env remove --yes"),
)
