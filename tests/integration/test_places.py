"""Tests of environments behind links, in other folders, and on mounts."""

import random
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from gpuinstall.base import process
from gpuinstall.environments.environment import is_vacant
from tests.frozen import GPUINSTALL
from tests.lab.cases import mostly_heavy
from tests.lab.driver import NO_GPU
from tests.lab.mounts import mounted
from tests.lab.screen import type_text
from tests.lab.wheels import make_wheel
from tests.lab.whole import found, publish_big, started

LOCK = "pylock.cpu.toml"
FILES = 100


@pytest.fixture
def project(workshop, stand_in_folder, play):
    """Create a project without an environment."""
    play(NO_GPU)
    publish_big(stand_in_folder / "simple", FILES)
    workshop.write("requirements.txt", "torch==2.14.1\nalpha==1.0\n")
    return workshop


def installed(project, *option):
    """Return the version of alpha that ``run`` imports."""
    code = "import importlib.metadata as m; print(m.version('alpha'))"
    done = project.run("run", *option, "python", "-c", code)
    return done.out.strip() or done.err


def kill_change(project, venv, words, seconds):
    """Kill a command while it changes the environment."""
    folders = (venv / ".gpuinstall", venv.with_name(f"{venv.name}.gpuinstall"))
    running = started(project, words)
    while not any((folder / "changing").exists() for folder in folders):
        if running.poll() is not None:
            return False
        time.sleep(0.0005)
    time.sleep(seconds)
    running.kill()
    running.wait()
    return any((folder / "changing").exists() for folder in folders)


def use_everywhere(project, venv, *option):
    """Install, run, change, roll back, and remove an environment."""
    project.succeed("install", "alpha==1.0", *option)
    assert (venv / "gpuinstall.json").is_file()
    assert 'version = "1.0"' in project.lock(LOCK)
    assert installed(project, *option) == "1.0"
    project.succeed("install", "alpha==2.0", *option)
    project.succeed("sync", *option)
    assert installed(project, *option) == "2.0"
    project.succeed("env", "rollback", *option)
    assert installed(project, *option) == "1.0"
    assert 'version = "1.0"' in project.lock(LOCK)
    assert not list(venv.parent.glob("pylock.*")) or venv.parent == project.folder
    project.succeed("env", "remove", "--yes", *option)
    assert not (venv / "pyvenv.cfg").exists()


@pytest.mark.heavy
@pytest.mark.root
@pytest.mark.parametrize(("size", "status"), [("130m", 0), ("50m", 4)])
def test_large_wheel_needs_little_more_than_its_files(
    project, stand_in_folder, tmp_path, size, status
):
    content = random.Random(0).randbytes(60_000_000)
    modules: dict[str, str | bytes] = {"large/data.bin": content}
    make_wheel(stand_in_folder / "simple", "large", "1.0", modules=modules)
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", f"size={size}", "tmpfs") as at:
        small = replace(project.having(UV_CACHE_DIR=str(at / "uv")), folder=at / "app")
        small.folder.mkdir()
        done = small.run("install", "torch==2.14.1", "large")
    assert done.status == status, done.err
    assert ("not enough space" in done.err) == bool(status)


def test_lock_checks_the_folder_before_the_download(project):
    with mounted(project.folder / "closed", "-t", "tmpfs", "-o", "ro", "tmpfs") as at:
        closed = replace(project, folder=at)
        done = closed.run("lock", "torch")
    assert done.status == 4
    assert "closed cannot be written: the file system is read-only" in done.err
    assert "Build " not in done.err


@pytest.mark.parametrize("kind", mostly_heavy(["link", "redirect"], {"link"}))
def test_link_out_of_the_repository_is_followed(project, tmp_path, kind):
    target, link = tmp_path / "scratch" / "env", project.folder / ".venv"
    target.parent.mkdir()
    if kind == "link":
        link.symlink_to(target)
    else:
        link.write_text(f"{target}\n")
    project.succeed("install")
    kills = (
        kill_change(project, target, ("install", *both), 0.005)
        for both in (("alpha==2.0", "big==2.0"), ("alpha==1.0", "big==1.0")) * 3
    )
    assert any(kills)
    project.succeed("sync")
    assert found(target) == []
    use_everywhere(project, target)
    assert link.is_symlink() or link.is_file()


def test_rebuild_asks_before_it_removes_an_environment(project):
    venv, previous = (project.folder / name for name in (".venv", ".venv.previous"))
    project.succeed("install")
    (venv / "bin" / "python").unlink()
    project.succeed("sync")
    (venv / "bin" / "python").unlink()
    (previous / "kept.txt").write_text("n")
    (venv / "kept.txt").write_text("y")
    for answer, status in (("n", 2), ("y", 0)):
        done = type_text(
            f"{answer}\n",
            [*GPUINSTALL, "sync"],
            env=project.environment,
            cwd=project.folder,
        )
        assert "is an older environment and would be removed. Remove it? [y/N]" in (
            done.stderr
        )
        assert done.returncode == status, done.stderr
        assert (previous / "kept.txt").read_text() == answer


@contextmanager
def image_layer(project, folder):
    """Create an environment in a layer of an image, and start a container."""
    project.succeed("install")
    project.succeed("install", "alpha==2.0")
    project.succeed("install", "alpha==1.0")
    for name in ("upper", "work"):
        (folder / name).mkdir()
    layers = f"redirect_dir=off,lowerdir={project.folder},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    with mounted(folder / "image", "-t", "overlay", "-o", layers, "overlay"):
        yield replace(project, folder=folder / "image")


@contextmanager
def empty_volume(project, folder):
    (folder / "volume").mkdir()
    with mounted(project.folder / ".venv", "--bind", folder / "volume"):
        yield project


@contextmanager
def filled_volume(project, folder):
    with empty_volume(project, folder):
        project.succeed("install")
    with mounted(project.folder / ".venv", "--bind", folder / "volume"):
        yield project.having(XDG_STATE_HOME=str(folder / "new home"))


@contextmanager
def own_disk(project, _folder):
    with mounted(project.folder / ".venv", "-t", "tmpfs", "tmpfs"):
        (project.folder / ".venv" / "lost+found").mkdir()
        yield project


PLACES = (image_layer, empty_volume, filled_volume, own_disk)


@pytest.mark.root
@pytest.mark.parametrize("place", mostly_heavy(PLACES, {empty_volume}))
def test_environment_on_a_mount_is_used(project, tmp_path, place):
    with place(project, tmp_path) as container:
        venv = container.folder / ".venv"
        container.succeed("install")
        (venv / "notes.txt").write_text("mine")
        assert installed(container) == "1.0"
        assert "already up to date" in container.succeed("sync").out
        words = ("install", "alpha==2.0", "big")
        assert any(kill_change(container, venv, words, 0.005) for _ in range(4))
        container.succeed("sync")
        assert found(venv) == []
        container.succeed(*words)
        assert installed(container) == "2.0"
        container.succeed("install", "alpha==1.0")
        container.succeed("env", "rollback")
        assert installed(container) == "2.0"
        assert (venv / "notes.txt").read_text() == "mine"
        container.succeed("env", "remove", "--yes")
        assert is_vacant(venv)
        container.succeed("sync")
        assert installed(container) == "2.0"


@pytest.mark.heavy
@pytest.mark.root
@pytest.mark.parametrize("place", PLACES)
def test_environment_on_a_mount_is_rebuilt(project, tmp_path, place):
    with place(project, tmp_path) as container:
        venv = container.folder / ".venv"
        container.succeed("install")
        for seconds in (0.005, None):
            (venv / "notes.txt").write_text("mine")
            (venv / "bin" / "python").unlink()
            words = ("sync", "--discard-previous")
            if seconds is not None:
                kill_change(container, venv, words, seconds)
            container.succeed(*words)
            assert found(venv) == []
        kept = [*container.folder.rglob("notes.txt")]
        assert [notes.read_text() for notes in kept] == ["mine"]
        assert kept[0].parent != venv
        container.succeed("env", "rollback")
        assert (venv / "notes.txt").read_text() == "mine"
        container.succeed("env", "rollback")
        assert not (venv / "notes.txt").exists()
        assert installed(container) == "1.0"
        container.succeed("env", "remove", "--yes")
        assert is_vacant(venv)


@contextmanager
def read_only(folder):
    with mounted(folder, "--bind", folder):
        assert process.run(["mount", "-o", "remount,bind,ro", folder]).ok
        yield


@pytest.mark.root
@pytest.mark.parametrize(
    "home", mostly_heavy(["same", "new", "read-only"], {"read-only"})
)
def test_environment_of_a_read_only_project_is_used(project, tmp_path, home):
    project.succeed("install")
    container = project
    if home != "same":
        (tmp_path / "home").mkdir()
        variables = ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
        container = project.having(**dict.fromkeys(variables, str(tmp_path / "home")))
    with ExitStack() as stack:
        stack.enter_context(read_only(project.folder))
        if home == "read-only":
            stack.enter_context(read_only(tmp_path / "home"))
        assert installed(container) == "1.0"
        assert "already up to date" in container.succeed("sync").out
        for words in (("verify",), ("env", "list"), ("plan",), ("lock", "check")):
            container.succeed(*words)
        error = container.refusal("install", "alpha==2.0", exit_code=4)
        assert error["code"] == "not-writable"


@pytest.mark.root
def test_volume_of_a_read_only_project_is_filled(project, tmp_path):
    project.succeed("lock")
    (project.folder / ".venv").mkdir()
    with read_only(project.folder), empty_volume(project, tmp_path):
        project.succeed("sync")
        assert installed(project) == "1.0"
        error = project.refusal("install", "alpha==2.0", exit_code=4)
        assert error["code"] == "not-writable"
        assert installed(project) == "1.0"
        project.succeed("env", "remove", "--yes")
