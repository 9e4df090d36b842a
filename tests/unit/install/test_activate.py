from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from gpuinstall import process, uv
from gpuinstall.install.activate import settle_activate

SHELLS = [
    ("sh", [".", "{}/bin/activate"]),
    ("dash", [".", "{}/bin/activate"]),
    ("bash", ["source", "{}/bin/activate"]),
    ("zsh", ["source", "{}/bin/activate"]),
    ("fish", ["source", "{}/bin/activate.fish"]),
]


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment built in one place, with a script, and moved to another whose name has a blank and a quote."""
    folder = tmp_path_factory.mktemp("it's here")
    built, final = folder / "staging", folder / "the venv"
    done = process.run(uv.create(Path(sys.executable), built), env={**os.environ, "UV_NO_CONFIG": "1"})
    assert done.ok, done.err
    settle_activate(built, final)
    built.rename(final)
    return final


@pytest.mark.parametrize(("shell", "command"), SHELLS)
def test_activate_is_right_after_the_move(shell: str, command: list[str], moved: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    activate = f'{command[0]} "{command[1].format(moved)}"'
    done = process.run([shell, "-c", f'{activate}; echo "$VIRTUAL_ENV"; command -v python'], cwd=moved.parent)
    assert done.ok, done.err
    assert done.out.splitlines() == [str(moved), str(moved / "bin" / "python")]


def test_activate_is_right_when_it_is_named_relative_to_another_folder(moved: Path) -> None:
    done = process.run(["sh", "-c", '. "./the venv/bin/activate"; cd /; command -v python'], cwd=moved.parent)
    assert done.out.strip() == str(moved / "bin" / "python")
