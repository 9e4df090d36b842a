"""The folders that people come with: what lies there is installed, and pip, uv and git stay usable beside us."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall import process, uv
from gpuinstall.facts.pythons import find_python
from gpuinstall.shell import joined
from tests.frozen import GPUINSTALL
from tests.lab.journeys import FIRST, Journey, Scene
from tests.lab.projects import commit
from tests.lab.setuptools import make_setup_project, make_setuptools
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
  - pytorch=2.14.1
  - pytorch-cuda=11.8
  - pip:
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
    done = process.run(
        [*words], env={**scene.workshop.environment, **own}, cwd=scene.workshop.folder
    )
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
    lifted = replace(
        scene.workshop, variables={**scene.workshop.variables, "PIP_CONFIG_FILE": "/dev/null"}
    )
    python = scene.workshop.folder / ".venv" / "bin" / "python"
    _ran(
        replace(scene, workshop=lifted),
        python,
        "-m",
        "pip",
        "install",
        "torch==2.15.0",
        "--index-url",
        index,
    )


def _damaged(scene: Scene) -> None:
    next(scene.workshop.folder.glob(".venv/lib/python*/site-packages/torch/__init__.py")).unlink()


def _moved(scene: Scene) -> None:
    scene.workshop.folder.with_name("requirements").rename(scene.workshop.folder)


def _git(scene: Scene, *words: str) -> Finished:
    who = ("-c", "user.name=lab", "-c", "user.email=lab@index.example")
    return process.run(
        ["git", "-C", scene.workshop.folder, *who, *words], env=scene.workshop.environment
    )


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
    owner = scene.workshop.folder / ".venv.gpuinstall" / "owner"
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
    """A runner that has no driver."""
    variables = {
        name: text for name, text in scene.workshop.variables.items() if name != "LD_LIBRARY_PATH"
    }
    return replace(
        scene.workshop, variables={**variables, "LD_LIBRARY_PATH": "", "CI": "true"}
    ).run(*words)


def _with_setup(scene: Scene) -> None:
    """A project that only its ``setup.py`` describes, and a script beside it."""
    make_setuptools(scene.index.folder / "simple")
    make_setup_project(scene.workshop.folder, "mine", "torch==2.14.1", "numpy")
    (scene.workshop.folder / "train.py").write_text("import mine, torch\n", encoding="utf-8")


def _with_index(scene: Scene) -> None:
    """A requirements file that names another index, which has nothing."""
    (scene.workshop.folder / "empty").mkdir()
    text = f"--extra-index-url {(scene.workshop.folder / 'empty').as_uri()}\ncowsay\n"
    (scene.workshop.folder / "extra.txt").write_text(text, encoding="utf-8")


def _with_timm(scene: Scene) -> None:
    scene.release("timm", "1.0", "torch", "torchvision")


def _in_shell(scene: Scene, words: tuple[str, ...]) -> Finished:
    """Run a line in a shell that has gpuinstall and uv on its path, and the default index alone."""
    workshop = scene.workshop
    programs = workshop.caches / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    (programs / "gpuinstall").write_text(
        f'#!/bin/sh\nexec {joined(GPUINSTALL)} "$@"\n', encoding="utf-8"
    )
    (programs / "gpuinstall").chmod(0o755)
    variables = {
        name: text for name, text in workshop.environment.items() if name != "PIP_CONFIG_FILE"
    }
    variables |= {
        "PIP_INDEX_URL": scene.index.default_index,
        "XDG_CONFIG_HOME": str(workshop.caches / "no-settings"),
    }
    variables["PATH"] = os.pathsep.join([str(programs), str(uv.uv().parent), os.environ["PATH"]])
    return process.run(["bash", "-c", *words], env=variables, cwd=workshop.folder)


LISTED = {"requirements.txt": "torch==2.14.1\n-r more.txt\n", "more.txt": "numpy\n"}
FOLDER_JOURNEYS = (
    Journey("requirements.txt", f"install --python {FIRST}", _with(LISTED), folder="requirements"),
    Journey("pyproject.toml", "install", _with({"pyproject.toml": PROJECT}), folder="pyproject"),
    Journey("environment.yml", "install", _with({"environment.yml": CONDA}), folder="conda"),
    Journey(
        "two request files",
        "install",
        _with({**LISTED, "environment.yml": CONDA}),
        folder="two-files",
    ),
    Journey("setup.py", f"install -e . --python {FIRST}", _with_setup, folder="with-setup"),
    Journey("a script without a block", "run train.py", folder="with-setup"),
    Journey("an extra index", "install -r extra.txt", _with_index, folder="with-setup"),
    Journey(
        "pip inside",
        ".venv/bin/pip install timm",
        _with_timm,
        _in_shell,
        "with-setup",
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
    Journey("two at once", "install cowsay", _with({}), _both_at_once, folder="two-at-once"),
    Journey("CI without a GPU", "sync", _cloned_for_ci, _without_gpu, folder="ci"),
)
