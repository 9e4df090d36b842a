"""Tests of environments behind links, in other folders, and on mounts."""

from dataclasses import replace

import pytest

from tests.lab.driver import NO_GPU
from tests.lab.wheels import make_wheel

LOCK = "pylock.cpu.toml"


@pytest.fixture
def project(workshop, stand_in_folder, play):
    """Create a project without an environment."""
    play(NO_GPU)
    for version in ("1.0", "2.0"):
        files = {"alpha.py": f"print('alpha {version}')"}
        make_wheel(stand_in_folder / "simple", "alpha", version, modules=files)
    (workshop.folder / "requirements.txt").write_text("torch==2.14.1\nalpha==1.0\n")
    return workshop


def use_everywhere(project, venv, *option):
    """Install, run, change, roll back, and remove an environment."""
    project.succeed("install", *option)
    assert (venv / "gpuinstall.json").is_file()
    assert 'version = "1.0"' in project.lock(LOCK)
    assert project.started("run", *option, "python", "-m", "alpha").out == "alpha 1.0\n"
    project.succeed("install", "alpha==2.0", "--only", "torch", *option)
    project.succeed("sync", *option)
    assert project.started("run", *option, "python", "-m", "alpha").out == "alpha 2.0\n"
    project.succeed("env", "rollback", *option)
    assert project.started("run", *option, "python", "-m", "alpha").out == "alpha 1.0\n"
    assert 'version = "1.0"' in project.lock(LOCK)
    assert not list(venv.parent.glob("pylock.*")) or venv.parent == project.folder
    project.succeed("env", "remove", "--yes", *option)
    assert not (venv / "pyvenv.cfg").exists()


@pytest.mark.parametrize("kind", ["link", "redirect"])
def test_link_out_of_the_repository_is_followed(project, tmp_path, kind):
    target, link = tmp_path / "scratch" / "env", project.folder / ".venv"
    target.parent.mkdir()
    if kind == "link":
        link.symlink_to(target)
    else:
        link.write_text(f"{target}\n")
    use_everywhere(project, target)
    assert link.is_symlink() or link.is_file()


def test_link_to_another_projects_environment_is_refused(project, tmp_path):
    other = replace(project, folder=tmp_path / "other")
    other.folder.mkdir()
    other.succeed("install", "torch==2.14.1")
    (project.folder / ".venv").symlink_to(other.folder / ".venv")
    for words in (("install",), ("sync",), ("env", "remove", "--yes")):
        error = project.refusal(*words, exit_code=2)
        assert error["code"] == "link-elsewhere", words
    assert project.run("run", "python").status == 2
    option = ("--venv", str(other.folder / ".venv"))
    assert option[1] in error["hint"]
    assert project.run("run", *option, "python", "--version").status == 0


def test_links_of_untrusted_projects_are_not_followed(project, tmp_path):
    (project.folder / ".venv").symlink_to(tmp_path / "missing")
    untrusted = project.having(GPUINSTALL_TRUST_FOLDER="0")
    error = untrusted.refusal("install", exit_code=2)
    assert error["code"] == "link-elsewhere"
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("place", ["envs/one", "/outside"])
def test_uv_project_environment_is_the_default(project, tmp_path, place):
    venv = project.folder / place if place[0] != "/" else tmp_path / place[1:]
    value = place if place[0] != "/" else str(venv)
    named = project.having(UV_PROJECT_ENVIRONMENT=value)
    use_everywhere(named, venv)
    below = replace(named, folder=project.folder / "src")
    below.folder.mkdir()
    below.succeed("sync")
    assert (venv / "pyvenv.cfg").is_file()
    assert below.entries() == set()
    named.having(GPUINSTALL_VENV="mine").succeed("install")
    assert (project.folder / "mine" / "pyvenv.cfg").is_file()


def test_lock_stays_in_the_project_of_an_environment(project, tmp_path):
    venv = tmp_path / "scratch" / "env"
    use_everywhere(project, venv, "--venv", str(venv))
    for alpha in ("1.0", "2.0"):
        project.succeed(
            "install", "--venv", str(venv), f"alpha=={alpha}", "--only", "torch"
        )
    elsewhere = replace(project, folder=tmp_path)
    elsewhere.succeed("env", "rollback", "--venv", str(venv))
    assert 'version = "1.0"' in project.lock(LOCK)
    assert not list(tmp_path.glob("**/scratch/pylock.*"))
