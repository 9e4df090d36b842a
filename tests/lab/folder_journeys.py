"""The folders that people come with: what lies there is installed, and pip, uv and git stay usable beside us."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall import process, uv
from gpuinstall.facts.pythons import find_python
from tests.lab.journeys import FIRST, Journey, Scene
from tests.lab.projects import commit
from tests.lab.wheels import make_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpuinstall.process import Finished

PROJECT = f"""\
[project]
name = "thing"
version = "1"
requires-python = "=={FIRST}.*"
dependencies = ["torch==2.14.1", "numpy"]

[dependency-groups]
dev = ["cowsay"]
"""
CONDA = f"""\
dependencies:
  - python={FIRST}
  - pip:
      - torch==2.14.1
      - cowsay
"""


def _with(files: Mapping[str, str]) -> Callable[[Scene], None]:
    """Let these files lie in a folder that is not there yet."""

    def make(scene: Scene) -> None:
        scene.workshop.folder.mkdir()
        for name, text in files.items():
            (scene.workshop.folder / name).write_text(text, encoding="utf-8")

    return make


def _ran(scene: Scene, *words: str | Path) -> None:
    own = {"UV_PYTHON": str(find_python(FIRST)), "UV_PYTHON_DOWNLOADS": "never"}
    done = process.run([*words], env={**scene.workshop.environment, **own}, cwd=scene.workshop.folder)
    assert done.ok, done.err


def _locked_by_uv(scene: Scene) -> None:
    """The team has a uv.lock; then a newer numpy appears."""
    _with({"pyproject.toml": PROJECT})(scene)
    make_wheel(scene.index.folder / "simple", "torch", "2.14.1", requires=["filelock"])
    _ran(scene, uv.uv(), "lock")
    scene.release("numpy", "2.5.0")


def _run_by_uv(scene: Scene) -> None:
    _ran(scene, uv.uv(), "run", "python", "-c", "pass")


def _upgraded_by_pip(scene: Scene) -> None:
    """Somebody lifts the constraints and asks the default index for a newer torch."""
    make_wheel(scene.index.folder / "simple", "torch", "2.15.0", requires=["filelock"])
    index = scene.workshop.environment["UV_DEFAULT_INDEX"]
    lifted = replace(scene.workshop, variables={**scene.workshop.variables, "PIP_CONFIG_FILE": "/dev/null"})
    python = scene.workshop.folder / ".venv" / "bin" / "python"
    _ran(replace(scene, workshop=lifted), python, "-m", "pip", "install", "torch==2.15.0", "--index-url", index)


def _damaged(scene: Scene) -> None:
    next(scene.workshop.folder.glob(".venv/lib/python*/site-packages/torch/__init__.py")).unlink()


def _moved(scene: Scene) -> None:
    scene.workshop.folder.with_name("requirements").rename(scene.workshop.folder)


def _git(scene: Scene, *words: str) -> Finished:
    who = ("-c", "user.name=lab", "-c", "user.email=lab@index.example")
    return process.run(["git", "-C", scene.workshop.folder, *who, *words], env=scene.workshop.environment)


def _in_conflict(scene: Scene) -> None:
    """Two people have added a package each, on branches that git cannot merge."""
    scene.workshop.folder.mkdir()
    scene.workshop.document("lock", "torch==2.14.1", "--python", FIRST)
    commit(scene.workshop.folder)
    for branch, name in (("colleague", "cowsay"), ("mine", "rich")):
        assert _git(scene, "checkout", "-q", "-b", branch, "main").ok
        scene.workshop.document("lock", name)
        commit(scene.workshop.folder)
    assert not _git(scene, "merge", "-q", "colleague").ok


def _both_at_once(scene: Scene, words: tuple[str, ...]) -> Finished:
    """A second command begins while the first one works."""
    first = scene.workshop.start("install", "torch==2.14.1", "numpy", "--python", FIRST)
    time.sleep(0.5)
    second = scene.workshop.start(*words)
    first.communicate()
    out, err = second.communicate()
    assert first.returncode == 0
    return process.Finished(words, second.returncode, out, err)


def _cloned_for_ci(scene: Scene) -> None:
    """The folder comes by git: files and locks, no environment."""
    _with({"pyproject.toml": PROJECT})(scene)
    scene.workshop.document("lock", "--target", "cu126", "--target", "cpu")


def _without_gpu(scene: Scene, words: tuple[str, ...]) -> Finished:
    """A runner that has no driver."""
    variables = {name: text for name, text in scene.workshop.variables.items() if name != "LD_LIBRARY_PATH"}
    return replace(scene.workshop, variables={**variables, "LD_LIBRARY_PATH": "", "CI": "true"}).run(*words)


LISTED = {"requirements.txt": "torch==2.14.1\n-r more.txt\n", "more.txt": "numpy\n"}
FOLDER_JOURNEYS = (
    Journey("requirements.txt", f"install --python {FIRST}", _with(LISTED), folder="requirements"),
    Journey("pyproject.toml", "install", _with({"pyproject.toml": PROJECT}), folder="pyproject"),
    Journey("environment.yml", f"install --python {FIRST}", _with({"environment.yml": CONDA}), folder="conda"),
    Journey("uv.lock", "sync", _locked_by_uv, folder="uv-project"),
    Journey("uv run beside", "run python -c pass", _run_by_uv, folder="uv-project"),
    Journey("brought back", "sync", folder="uv-project"),
    Journey("pip beside", "run python -c pass", _upgraded_by_pip, folder="pyproject"),
    Journey("brought back", "sync", folder="pyproject"),
    Journey("a damaged file", "run python -c pass", _damaged, folder="pyproject"),
    Journey("mended", "install", folder="pyproject"),
    Journey("moved folder", "install", _moved, folder="moved"),
    Journey("conflict in git", "lock", _in_conflict, folder="in-git"),
    Journey("two at once", "install cowsay", _with({}), _both_at_once, folder="two-at-once"),
    Journey("CI without a GPU", "sync", _cloned_for_ci, _without_gpu, folder="ci"),
)
