from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.shell import activation
from gpuinstall.install.inspection import ExistingEnvironment
from gpuinstall.install.priced_lock import PricedLock
from gpuinstall.install.stage import build_commands, settle_activate
from gpuinstall.lock.fit import Fit
from gpuinstall.lock.lock import parse
from gpuinstall.plan.values import Choice, Plan
from tests.frozen import frozen_catalog
from tests.unit.install.environments import lock_text

BUILD = next(build for build in frozen_catalog().builds if build.backend.tag == "cu126")
CHOICE = Choice(BUILD, "3.12", "https://index.example/whl/cu126", ())


def commands(*unchanged: str, base: Path | None = Path("/usr/bin/python3.12")) -> list[list[str]]:
    """The first words of the commands that build an environment of one package, torch."""
    fit = Fit(parse("pylock.cu126.toml", lock_text()), Plan("ok", CHOICE))
    paths = EnvironmentPaths(Path("/x/.venv"))
    existing = ExistingEnvironment(paths, packages={"torch": "2.14.1", "einops": "1", "pip": "1"})
    priced = PricedLock(fit, existing=existing, unchanged=frozenset(unchanged))
    return [command[1:3] for command in build_commands(priced, base, paths)]


def test_a_python_that_is_not_here_is_fetched_first():
    built = [["venv", "--quiet"], ["pip", "sync"], ["pip", "install"]]

    assert commands() == built
    assert commands(base=None) == [["python", "install"], *built]


def test_what_stays_is_copied_by_no_command():
    assert commands("torch", "einops") == []
    assert commands("torch") == [["pip", "uninstall"]]
    assert commands("einops") == [["pip", "uninstall"], ["pip", "install"]]


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
def test_the_line_that_people_are_given_activates_it_after_the_move(program, shell, moved):
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    line = activation(str(moved), shell, windows=False)
    done = process.run(
        [program, "-c", f'{line}; echo "$VIRTUAL_ENV"; command -v python'], cwd=moved.parent
    )
    assert done.ok, done.err
    assert done.out.splitlines() == [str(moved), str(moved / "bin" / "python")]


def test_activate_is_right_when_it_is_named_relative_to_another_folder(moved):
    done = process.run(
        ["sh", "-c", '. "./the venv/bin/activate"; cd /; command -v python'], cwd=moved.parent
    )
    assert done.out.strip() == str(moved / "bin" / "python")
