"""The folders that people come with: what lies there is installed, and pip, uv and git stay usable beside us."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from gpuinstall import process, uv
from gpuinstall.facts.pythons import find_python
from gpuinstall.shell import joined
from tests.frozen import GPUINSTALL
from tests.lab.journeys import FIRST, Journey, Scene
from tests.lab.projects import COMMITTER, commit
from tests.lab.setuptools import make_setup_project, make_setuptools
from tests.lab.wheels import make_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
  - pytorch=2.14.1
  - pytorch-cuda=11.8
  - pip:
      - cowsay
"""


def _with(files: Mapping[str, str]) -> Callable[[Scene], None]:
    """Let these files lie in a folder that is not there yet."""

    def make(scene: Scene) -> None:
        scene.folder.mkdir()
        for name, text in files.items():
            (scene.folder / name).write_text(text, encoding="utf-8")

    return make


def _by_uv(scene: Scene, *words: str) -> None:
    python = str(find_python(FIRST))
    scene.with_variables(UV_PYTHON=python, UV_PYTHON_DOWNLOADS="never").run(uv.uv(), *words)


def _locked_by_uv(scene: Scene) -> None:
    """The team has a uv.lock; then a newer numpy appears."""
    _with({"pyproject.toml": PROJECT})(scene)
    make_wheel(scene.index.folder / "simple", "torch", "2.14.1", requires=["filelock"])
    _by_uv(scene, "lock")
    scene.release("numpy", "2.5.0")


def _run_by_uv(scene: Scene) -> None:
    _by_uv(scene, "run", "python", "-c", "pass")


def _upgraded_by_pip(scene: Scene) -> None:
    """Lift the constraints and ask the default index for a newer torch."""
    make_wheel(scene.index.folder / "simple", "torch", "2.15.0", requires=["filelock"])
    unconstrained = scene.with_variables(PIP_CONFIG_FILE="/dev/null")
    index = scene.index.default_index
    unconstrained.run(scene.python, "-m", "pip", "install", "torch==2.15.0", "--index-url", index)


def _damaged(scene: Scene) -> None:
    next(scene.folder.glob(".venv/lib/python*/site-packages/torch/__init__.py")).unlink()


def _moved(scene: Scene) -> None:
    scene.folder.with_name("requirements").rename(scene.folder)


def _in_conflict(scene: Scene) -> None:
    """Two people have added a package each, on branches that git cannot merge."""
    scene.folder.mkdir()
    scene.workshop.document("lock", "torch==2.14.1", "--python", FIRST)
    commit(scene.folder)
    for branch, name in (("colleague", "cowsay"), ("mine", "rich")):
        scene.run("git", "checkout", "-q", "-b", branch, "main")
        scene.workshop.document("lock", name)
        commit(scene.folder)
    merge = ["git", *COMMITTER, "merge", "-q", "colleague"]
    done = process.run(merge, env=scene.workshop.environment, cwd=scene.folder)
    assert not done.ok


def _both_at_once(scene: Scene, words: tuple[str, ...]) -> Finished:
    """Begin a second command while the first one works."""
    first = scene.workshop.start("install", "torch==2.14.1", "numpy", "--python", FIRST)
    owner = scene.folder / ".venv.gpuinstall" / "owner"
    while not owner.exists() and first.poll() is None:
        time.sleep(0.01)
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
    """Run where there is no driver, as most runners of CI are."""
    return scene.with_variables(LD_LIBRARY_PATH="", CI="true").workshop.run(*words)


def _with_setup(scene: Scene) -> None:
    """A project that only its ``setup.py`` describes, and a script beside it."""
    make_setuptools(scene.index.folder / "simple")
    make_setup_project(scene.folder, "mine", "torch==2.14.1", "numpy")
    (scene.folder / "train.py").write_text("import mine, torch\n", encoding="utf-8")


def _with_index(scene: Scene) -> None:
    """A requirements file that names another index, which has nothing."""
    index = scene.folder / "empty"
    index.mkdir()
    text = f"--extra-index-url {index.as_uri()}\ncowsay\n"
    (scene.folder / "extra.txt").write_text(text, encoding="utf-8")


def _with_timm(scene: Scene) -> None:
    scene.release("timm", "1.0", "torch", "torchvision")


def _in_shell(scene: Scene, words: tuple[str, ...]) -> Finished:
    """Run a line in a shell that has gpuinstall and uv on its path, and the default index alone."""
    caches = scene.workshop.caches
    command = caches / "programs" / "gpuinstall"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {joined(GPUINSTALL)} "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    path = [str(command.parent), str(uv.uv().parent), os.environ["PATH"]]
    variables = {
        **scene.workshop.environment,
        "PIP_INDEX_URL": scene.index.default_index,
        "XDG_CONFIG_HOME": str(caches / "no-settings"),
        "PATH": os.pathsep.join(path),
    }
    # The index keeps pip from its settings; the environment's own, with the constraints, count here.
    del variables["PIP_CONFIG_FILE"]
    return process.run(["bash", "-c", *words], env=variables, cwd=scene.folder)


REQUIREMENTS = {"requirements.txt": "torch==2.14.1\n-r more.txt\n", "more.txt": "numpy\n"}
FOLDER_JOURNEYS = (
    Journey(
        "requirements.txt", f"install --python {FIRST}", _with(REQUIREMENTS), folder="requirements"
    ),
    Journey("pyproject.toml", "install", _with({"pyproject.toml": PROJECT}), folder="pyproject"),
    Journey("environment.yml", "install", _with({"environment.yml": CONDA}), folder="conda"),
    Journey(
        "two request files",
        "install",
        _with({**REQUIREMENTS, "environment.yml": CONDA}),
        folder="two-files",
    ),
    Journey("setup.py", f"install -e . --python {FIRST}", _with_setup, folder="with-setup"),
    Journey("a script without a block", "run train.py", folder="with-setup"),
    Journey("an extra index", "install -r extra.txt", _with_index, folder="with-setup"),
    Journey(
        "pip inside",
        ".venv/bin/pip install timm",
        before=_with_timm,
        run=_in_shell,
        folder="with-setup",
        is_ours=False,
    ),
    Journey("uv.lock", "sync", _locked_by_uv, folder="uv-project"),
    Journey("uv run beside", "run python -c pass", _run_by_uv, folder="uv-project"),
    Journey("brought back", "sync", folder="uv-project"),
    Journey("pip beside", "run python -c pass", _upgraded_by_pip, folder="pyproject"),
    Journey("brought back", "sync", folder="pyproject"),
    Journey("a damaged file", "run python -c pass", _damaged, folder="pyproject"),
    Journey("mended", "install", folder="pyproject"),
    Journey(
        "uv add",
        'eval "$(gpuinstall shellenv)"; uv add rich',
        run=_in_shell,
        folder="pyproject",
        is_ours=False,
    ),
    Journey("moved folder", "install", _moved, folder="moved"),
    Journey("conflict in git", "lock", _in_conflict, folder="in-git"),
    Journey(
        "two at once",
        "install cowsay",
        before=_with({}),
        run=_both_at_once,
        folder="two-at-once",
    ),
    Journey(
        "CI without a GPU",
        "sync",
        before=_cloned_for_ci,
        run=_without_gpu,
        folder="ci",
    ),
)
