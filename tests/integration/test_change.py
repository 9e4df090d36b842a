"""Tests of environments that other tools modify, too."""

import pytest

from gpuinstall.base import uv
from tests.lab.driver import NO_GPU
from tests.lab.processes import succeed
from tests.lab.wheels import make_wheel


@pytest.fixture
def project(workshop, stand_in_folder, play):
    """Create an environment with torch and alpha 1.0, and more wheels."""
    play(NO_GPU)
    for version, data in (("1.0", "alpha/data"), ("2.0", "alpha/data/x.json")):
        files = {"alpha/__init__.py": version, f"alpha/only-{version}.py": "", data: ""}
        make_wheel(stand_in_folder / "simple", "alpha", version, modules=files)
    make_wheel(stand_in_folder / "simple", "beta", "1.0", requires=["numpy<2"])
    workshop.document("install", "torch==2.14.1", "alpha==1.0")
    return workshop


def venv(project):
    return project.folder / ".venv"


def site(project):
    return next(venv(project).glob("lib/python*/site-packages"))


def with_uv(project, *words):
    """Run ``uv pip`` in a project's environment."""
    succeed(
        [uv.uv(), "pip", *words, "--python", venv(project) / "bin" / "python"],
        env={
            **project.environment,
            "UV_INDEX_URL": project.environment["UV_DEFAULT_INDEX"],
        },
    )


def holds(project):
    """Return the installed test packages with their versions."""
    names = {"alpha", "beta", "cowsay", "numpy"}
    installed = [path.stem.split("-") for path in site(project).glob("*.dist-info")]
    return {name: version for name, version in installed if name in names}


def said_by(project, *words):
    done = project.succeed(*words)
    return done.err + done.out


def wait_until_asked(stand_in, running, ending=""):
    """Wait until a command has requested cowsay from the index."""
    paths: list[str] = []
    while not any("cowsay" in path and path.endswith(ending) for path in paths):
        paths = [asked.path for asked in stand_in.log]
        assert running.poll() is None, running.communicate()


@pytest.mark.heavy
def test_concurrent_pip_change_is_detected(project, stand_in):
    stand_in.default.pace = 0.3
    running = project.start("install", "cowsay", "alpha==2.0")
    wait_until_asked(stand_in, running, ".whl")
    with_uv(project, "install", "--no-deps", "beta")
    (venv(project) / "saved.ipynb").write_text("mine")
    _, said = running.communicate()
    assert running.returncode == 0, said
    assert holds(project) == {"alpha": "2.0", "beta": "1.0", "cowsay": "6.1"}
    project.succeed("remove", "cowsay")
    project.succeed("install", "cowsay")
    assert (venv(project) / "saved.ipynb").exists()


@pytest.mark.heavy
def test_waiting_command_reads_project_files_again(project, stand_in):
    stand_in.default.pace = 60.0
    first = project.start("install", "cowsay")
    wait_until_asked(stand_in, first)
    second = project.start("install", "alpha")
    assert any("waiting up to" in line for line in second.stderr)
    project.write("requirements.txt", "numpy\n")
    stand_in.default.pace = 0
    for run in (first, second):
        _, errors = run.communicate()
        assert run.returncode == 0, errors
    assert holds(project).keys() == {"alpha", "cowsay", "numpy"}


AT_ONCE = (
    ("install", "alpha==2.0"),
    ("remove", "cowsay"),
    ("install", "numpy"),
    ("install", "torch==2.13.0"),
    ("sync",),
)


@pytest.mark.heavy
def test_concurrent_commands_keep_all_changes(project):
    project.succeed("install", "cowsay")
    running = [project.start(*words) for words in AT_ONCE]
    outputs = [one.communicate(timeout=300) for one in running]
    assert not any(one.returncode for one in running), outputs
    assert holds(project) == {"alpha": "2.0", "numpy": "2.3.4"}
    torch = "2.13.0+cpu"
    assert project.python("import torch; print(torch.__version__)") == torch
    assert f'version = "{torch}"' in project.lock("pylock.cpu.toml")
    assert "already up to date" in said_by(project, "sync")
