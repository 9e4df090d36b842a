"""torch put into environments that others made: real uv, a stand-in index, a played driver."""

import json
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from tests.lab.clone import ROOT
from tests.lab.driver import NO_GPU, RTX_4090, FakeDriver, FakeGpu

KILLED = """
import os, signal
from gpuinstall.install import transaction
from tests.frozen import freeze
freeze()
def struck(*_):
    os.kill(os.getpid(), signal.SIGKILL)
transaction.verify = struck
"""


def plain_venv(workshop):
    """An application's own environment, with an older torch and a package that nobody else knows."""
    venv = workshop.folder / "app"
    made = process.run(
        [uv.uv(), "venv", "--no-project", "--python", sys.executable, venv],
        env=workshop.environment,
    )
    assert made.ok, made.err
    return venv


def conda_like(workshop):
    """A prefix of Python's own layout with ``conda-meta``: no pyvenv.cfg, its packages in its own library."""
    prefix = workshop.folder / "miniconda"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "conda-meta").mkdir()
    library = Path(sysconfig.get_path("stdlib"))
    passed = shutil.ignore_patterns(
        "site-packages", "test", "__pycache__", "EXTERNALLY-MANAGED", "config-*"
    )
    shutil.copytree(
        library, prefix / "lib" / version, symlinks=True, copy_function=os.link, ignore=passed
    )
    (prefix / "lib" / version / "site-packages").mkdir()
    base = Path(sysconfig.get_config_var("BINDIR")) / version
    shutil.copy2(base, prefix / "bin" / "python")
    for shared in Path(sysconfig.get_config_var("LIBDIR")).glob("libpython*"):
        (prefix / "lib" / shared.name).symlink_to(shared)
    return prefix


def fill(workshop, environment):
    """Put the application and an older torch into an environment; return what is in it."""
    python, site = (
        environment / "bin" / "python",
        next(environment.glob("lib/python*/site-packages")),
    )
    done = workshop.run("install", "--into", "--python", str(python), "torch==2.13.0")
    assert done.status == 0, done.out + done.err
    changes = [line for line in done.err.splitlines() if line.startswith("Changes ")]
    assert len(changes) == 1, changes
    (site / "app.py").write_text("import torch\nprint(torch.__version__)\n")
    return files(environment)


def files(environment):
    """Every file of the environment's packages and commands, but what Python compiles and what an undo needs."""
    folders = [*environment.glob("lib/python*/site-packages"), environment / "bin"]
    found = (
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    )
    return {
        str(path.relative_to(environment)): path.read_bytes()
        for path in found
        if ".gpuinstall" not in path.parts
    }


def tell(monkeypatch, folder, failed):
    (folder / "verdict.json").write_text(json.dumps({"*": {"failed": failed}}), "utf-8")
    monkeypatch.setenv("LAB_VERDICT", str(folder / "verdict.json"))


@pytest.mark.parametrize("make", [pytest.param(plain_venv, marks=pytest.mark.heavy), conda_like])
def test_torch_goes_into_an_environment_of_others_and_a_failing_kernel_undoes_it(
    workshop,
    play,
    monkeypatch,
    make,
):
    play(RTX_4090)
    environment = make(workshop)
    before = fill(workshop, environment)
    into = ("install", "--into", "--venv", environment.name, "torch>=2.14")

    shown = workshop.document(*into, "--dry-run")["data"]
    moved = {change["package"]: (change["old"], change["new"]) for change in shown["changes"]}
    assert moved["torch"] == ("2.13.0+cu126", "2.14.1+cu126")
    assert files(environment) == before

    with monkeypatch.context() as context:
        tell(
            context,
            workshop.folder,
            {"matmul-float32": "CUDA error: no kernel image is available for execution"},
        )
        failed = workshop.run(*into)
    assert failed.status == 5, failed.out + failed.err
    assert "~ torch 2.13.0+cu126 -> 2.14.1+cu126" in failed.err
    assert "the environment was restored" in failed.err
    assert files(environment) == before

    killed = struck(workshop, *into)
    assert killed.status == -9, killed.out + killed.err
    assert files(environment) != before
    after = workshop.run(*into)
    assert after.status == 0, after.out + after.err
    assert "Put back" in after.err
    assert process.run([environment / "bin" / "python", "-m", "app"]).out == "2.14.1+cu126\n"
    again = workshop.document(*into)["data"]
    assert (again["changes"], again["environment"]["status"], again["verdict"]["status"]) == (
        [],
        "none",
        "passed",
    )
    undone = workshop.run(
        *next(line for line in after.out.splitlines() if "Undo" in line)
        .split("   #")[0]
        .split()[2:]
    )
    assert undone.status == 0, undone.err
    assert files(environment) == before
    assert workshop.run("env", "rollback", "--into", "--venv", environment.name).status == 0
    assert process.run([environment / "bin" / "python", "-m", "app"]).out == "2.14.1+cu126\n"


@pytest.fixture
def comfyui(workshop, play):
    """A clone of ComfyUI with its environment and one custom node."""
    play(RTX_4090)
    folder = workshop.folder
    for name in ("comfy", "custom_nodes/painter"):
        (folder / name).mkdir(parents=True)
    (folder / "main.py").touch()
    venv = plain_venv(workshop)
    venv.rename(folder / "venv")
    return folder


def test_settings_of_uv_that_others_wrote_stay_as_they_are(workshop, comfyui):
    (comfyui / "uv.toml").write_text("no-cache = true\n")
    done = workshop.run("install", "--into", "torch==2.13.0")

    assert done.status == 0, done.err
    assert (comfyui / "uv.toml").read_text() == "no-cache = true\n"
    assert "constraints.txt" in offered(done, "Guard")


def test_a_pip_configuration_of_the_users_stays_as_it_is(workshop, comfyui):
    """It says nothing but what a guard says too."""
    text = "[install]\nconstraint = file:///srv/team/constraints.txt\n"
    file = comfyui / "venv" / "pip.conf"
    file.write_text(text)

    done = workshop.run("install", "--into", "torch==2.13.0")

    assert done.status == 0, done.err
    assert file.read_text() == text
    assert not (comfyui / "venv" / "constraints.txt").exists()
    assert "pip.conf is not gpuinstall's" in " ".join(done.err.split())


@pytest.mark.usefixtures("comfyui")
def test_a_repair_of_what_was_never_proven_is_refused(workshop):
    refused = workshop.document("install", "--repair", "--into", exit_code=2)

    assert refused["errors"][0]["code"] == "nothing-proven"
    alone = workshop.document("install", "--repair", exit_code=2)
    assert alone["errors"][0]["code"] == "options-apart"


def offered(done, label):
    """The text of a labelled line of the result."""
    return (
        next(line for line in done.out.splitlines() if line.startswith(label))
        .removeprefix(label)
        .strip()
    )


@pytest.mark.heavy
def test_a_torch_that_runs_here_keeps_its_version_and_its_build_unless_asked(workshop, play):
    play(RTX_4090)
    environment = plain_venv(workshop)
    fill(workshop, environment)
    into = ("install", "--into", "--venv", environment.name)

    beside = workshop.document(*into, "cowsay")["data"]
    assert [change["package"] for change in beside["changes"]] == ["cowsay"]
    play(FakeDriver((FakeGpu(),), driver="580.95.05", cuda=13000))
    assert workshop.document(*into)["data"]["changes"] == []
    other = workshop.document(*into, "--backend", "cpu", "--dry-run")["data"]
    moved = {change["package"]: change["new"] for change in other["changes"]}
    assert moved["torch"] == "2.13.0+cpu"
    newest = workshop.document(*into, "torch>=2.14", "--dry-run")["data"]
    assert "torch" in {change["package"] for change in newest["changes"]}


def test_a_cpu_build_that_pip_took_becomes_the_build_of_this_machine(workshop, play):
    into = ("install", "--into", "--venv", "app", "--dry-run")
    site = next(plain_venv(workshop).glob("lib/python*/site-packages"))
    table = {
        # the same version, another only if none of its builds runs, and what has no GPU keeps its build
        "2.13.0": (RTX_4090, "2.13.0+cu126"),
        "2.15.0": (RTX_4090, "2.14.1+cu126"),
        "2.14.1": (NO_GPU, "2.14.1+cpu"),
    }
    wrong = {}
    for version, (driver, expected) in table.items():
        metadata = site / f"torch-{version}+cpu.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}+cpu\n")
        play(driver)
        data = workshop.document(*into)["data"]
        moved = {change["package"]: change["new"] for change in data["changes"]}
        torch = moved.get("torch", f"{version}+cpu")
        if torch != expected:
            wrong[version] = torch
        shutil.rmtree(metadata.parent)

    assert wrong == {}


def struck(workshop, *arguments):
    """Run until the moment when the packages are in and nothing is proven, and die there."""
    run = "from gpuinstall.cli.main import run_command_line; run_command_line(__import__('sys').argv[1:])"
    words = [sys.executable, "-c", f"{KILLED}{run}", *arguments]
    return process.run(
        words, env={**workshop.environment, "PYTHONPATH": str(ROOT)}, cwd=workshop.folder
    )


def test_the_systems_python_is_never_touched(workshop, play):
    play(RTX_4090)
    system = conda_like(workshop)
    (next(system.glob("lib/python3*")) / "EXTERNALLY-MANAGED").write_text("[externally-managed]\n")
    before = files(system)
    refused = workshop.document("install", "--into", "--venv", str(system), exit_code=2)
    assert refused["errors"][0]["code"] == "system-python"
    (next(system.glob("lib/python3*")) / "EXTERNALLY-MANAGED").unlink()
    (system / "conda-meta").rmdir()
    refused = workshop.document("install", "--into", "--venv", str(system), exit_code=2)
    assert refused["errors"][0]["code"] == "system-python"
    assert files(system) == before


@pytest.mark.parametrize("option", ["--only", "--replace", "--upgrade", "--upgrade-package=numpy"])
def test_what_means_nothing_there_is_refused(workshop, option):
    error = workshop.refusal("install", "--into", "--venv", "theirs", option, exit_code=2)
    assert error["message"] == f"--into cannot be combined with {option.partition('=')[0]}"
