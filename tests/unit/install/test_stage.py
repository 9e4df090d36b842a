import os
import shutil
import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from gpuinstall.base.shell import activation
from gpuinstall.install.stage import settle_activate


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """An environment built in one place, with a script, and moved to another whose name has a blank and a quote."""
    folder = tmp_path_factory.mktemp("it's here")
    built, final = folder / "staging", folder / "the venv"
    done = process.run(
        uv.create(Path(sys.executable), built), env={**os.environ, "UV_NO_CONFIG": "1"}
    )
    assert done.ok, done.err
    settle_activate(built, final)
    built.rename(final)
    return final


@pytest.mark.parametrize(
    ("program", "shell"),
    [("sh", "sh"), ("dash", "sh"), ("bash", "bash"), ("zsh", "zsh"), ("fish", "fish")],
)
def test_the_line_that_people_are_given_activates_it_after_the_move(
    program, shell, moved
):
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    line = activation(str(moved), shell, windows=False)
    done = process.run(
        [program, "-c", f'{line}; echo "$VIRTUAL_ENV"; command -v python'],
        cwd=moved.parent,
    )
    assert done.ok, done.err
    assert done.out.splitlines() == [str(moved), str(moved / "bin" / "python")]


def test_activate_is_right_when_it_is_named_relative_to_another_folder(moved):
    done = process.run(
        ["sh", "-c", '. "./the venv/bin/activate"; cd /; command -v python'],
        cwd=moved.parent,
    )
    assert done.out.strip() == str(moved / "bin" / "python")
