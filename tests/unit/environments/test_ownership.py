"""Whose the files of an environment are, with environments that venv and uv make."""

import shutil
import sys

import pytest

from gpuinstall.base import process, uv
from gpuinstall.environments.environment import added_packages
from gpuinstall.environments.guard import write_guard
from gpuinstall.environments.ownership import user_paths
from tests.lab.wheels import make_wheel
from tests.unit.install.environments import make_environment


@pytest.fixture(scope="module", params=["venv", "uv venv"])
def installed(request, tmp_path_factory):
    """An environment with two packages that are compiled, one of which has commands and data."""
    folder = tmp_path_factory.mktemp("made")
    venv = folder / "env"
    made = {
        "venv": [sys.executable, "-m", "venv", "--without-pip", venv],
        "uv venv": [uv.uv(), "venv", "--relocatable", "--python", sys.executable, venv],
    }
    assert process.run(made[request.param]).ok
    data = "tool-1.0.data/data"
    modules = {
        "tool/__init__.py": "",
        "tool/inner.py": "",
        f"{data}/share/tool/page.html": "a page",
        f"{data}/etc/tool.conf": "a setting",
        "tool-1.0.data/scripts/tool": "#!python\n",
        "tool-1.0.dist-info/entry_points.txt": "[console_scripts]\ntool-again = tool:main\n",
    }
    wheels = (
        make_wheel(folder, "tool", "1.0", modules=modules),
        make_wheel(folder, "other", "2.0"),
    )
    words = (
        "pip",
        "install",
        "--no-index",
        "--compile-bytecode",
        "--python",
        venv / "bin/python",
    )
    done = process.run([uv.uv(), *words, *wheels])
    assert done.ok, done.err
    return venv


@pytest.fixture
def venv(installed, tmp_path):
    return shutil.copytree(installed, tmp_path / "env", symlinks=True)


def site(venv):
    return next(venv.glob("lib/python*/site-packages"))


def test_nothing_that_an_installer_python_or_we_wrote_is_the_users(venv):
    assert user_paths(venv) == ()
    for path in (
        ".gpuinstall/last/journal.json",
        "tool/__pycache__/inner.cpython-313.opt-1.pyc",
        "tool/__pycache__/inner.fast-3.py311.nbi",
        "tool/__pycache__/inner.fast-3.py311.1.nbc",
    ):
        (site(venv) / path).parent.mkdir(parents=True, exist_ok=True)
        (site(venv) / path).touch()
    assert user_paths(venv) == ()


def test_everything_else_in_an_environment_is_the_users(venv):
    packages = site(venv).relative_to(venv).as_posix()
    files = [
        "train.py",
        "bin/my-tool",
        "bin/python-notes.txt",
        "share/tool/mine.html",
        "lib/thesis/chapter",
        f"{packages}/mine.py",
        f"{packages}/tool/mine.py",
        f"{packages}/tool/mine.pyc",
        f"{packages}/tool/__pycache__/mine.txt",
        f"{packages}/mine.pth",
    ]
    for file in (
        *files,
        ".git/HEAD",
        ".git/objects/ab/cd",
        "etc/tool.conf",
        ".gitignore",
    ):
        (venv / file).parent.mkdir(parents=True, exist_ok=True)
        (venv / file).write_text("mine, and longer than what was there", "utf-8")
    (venv / "data").symlink_to("/")
    (venv / "empty").mkdir()
    expected = {*files, ".git", "etc", ".gitignore", "data"}
    assert set(user_paths(venv)) == expected


def test_a_record_gives_away_no_file_outside_its_packages(venv):
    (venv / "thesis.txt").write_text("mine", "utf-8")
    rows = "../../../thesis.txt,sha256=x,9999\n../../../thesis.txt,,\n../../../../env/train.py,,\n"
    record = next(site(venv).glob("other-*.dist-info/RECORD"))
    record.write_text(record.read_text("utf-8") + rows, "utf-8")
    (venv / "train.py").write_text("mine", "utf-8")
    assert user_paths(venv) == ("thesis.txt", "train.py")


def test_in_a_folder_that_is_no_environment_everything_is_the_users(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "activate").touch()
    assert user_paths(tmp_path) == ("bin", "thesis")


def test_what_gpuinstall_writes_is_the_users_after_an_edit(tmp_path):
    venv = make_environment(tmp_path / ".venv", "ours")
    # It is like one of ours.
    (venv / "pip.conf").write_text("[install]\nconstraint = file:///srv/team.txt\n")
    assert user_paths(venv) == ("pip.conf",)
    final = tmp_path / "a b" / ".venv"
    lines = ["torch==2.14.1"]
    write_guard(venv, final, "pylock.cu126.toml", lines, ("/srv/mine.txt",))
    assert user_paths(venv) == ()
    for name in ("pip.conf", "constraints.txt"):
        with (venv / name).open("a", encoding="utf-8") as file:
            file.write("six==1.0\n")
    (venv / "pylock.mine.toml").touch()
    assert user_paths(venv) == ("constraints.txt", "pip.conf", "pylock.mine.toml")


def test_packages_that_were_added_are_those_in_no_lock(tmp_path):
    venv = make_environment(tmp_path / ".venv", "ours")
    for name in ("cowsay", "pip"):
        (venv / "lib/python3.12/site-packages" / f"{name}-1.0.dist-info").mkdir()
    assert added_packages(venv) == ("cowsay 1.0",)
