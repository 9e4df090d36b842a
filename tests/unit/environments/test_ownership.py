"""Owners of files in environments by venv and uv, and forbidden paths."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from gpuinstall.base.environment_paths import interpreter, packages_folders
from gpuinstall.environments.guard import write_guard
from gpuinstall.environments.ownership import (
    find_misplaced_file,
    find_user_paths,
)
from gpuinstall.environments.packages import read_packages
from tests.lab.skips import needs_venv
from tests.lab.wheels import make_wheel
from tests.unit.install.environments import SCRIPTS, SITE, make_environment, write_files

UP = "../" * len(Path(SITE).parts)
UV_VENV = [str(uv.uv()), "venv", "--relocatable", "--python", sys.executable]
VENV = [sys.executable, "-m", "venv", "--without-pip"]


@pytest.fixture(
    scope="module",
    params=[pytest.param(VENV, marks=needs_venv), UV_VENV],
    ids=["venv", "uv venv"],
)
def installed(request, tmp_path_factory):
    """An environment with two compiled packages, one with scripts and data."""
    folder = tmp_path_factory.mktemp("made")
    venv = folder / "env"
    assert process.run([*request.param, venv]).ok
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
    words = ("--no-index", "--compile-bytecode", *wheels)
    done = process.run(uv.pip_command("install", interpreter(venv), *map(str, words)))
    assert done.ok, done.err
    return venv


@pytest.fixture
def venv(installed, tmp_path):
    return shutil.copytree(installed, tmp_path / "env", symlinks=True)


def site(venv):
    [folder] = packages_folders(venv)
    return folder


def test_generated_files_do_not_belong_to_the_user(venv):
    assert find_user_paths(venv) == []
    write_files(
        site(venv),
        ".gpuinstall/last/journal.json",
        "tool/__pycache__/inner.cpython-313.opt-1.pyc",
        "tool/__pycache__/inner.fast-3.py311.nbi",
        "tool/__pycache__/inner.fast-3.py311.1.nbc",
    )
    assert find_user_paths(venv) == []


def test_unrecorded_files_belong_to_the_user(venv):
    packages = site(venv).relative_to(venv).as_posix()
    files = [
        "train.py",
        f"{SCRIPTS}/my-tool",
        f"{SCRIPTS}/python-notes.txt",
        "share/tool/mine.html",
        f"{SITE.partition('/')[0]}/thesis/chapter",
        f"{packages}/mine.py",
        f"{packages}/tool/mine.py",
        f"{packages}/tool/mine.pyc",
        f"{packages}/tool/__pycache__/mine.txt",
        f"{packages}/mine.pth",
    ]
    others = [".git/HEAD", ".git/objects/ab/cd", "etc/tool.conf", ".gitignore"]
    write_files(venv, *files, *others, "empty/", text="longer than what was there")
    expected = {*files, ".git", "etc", ".gitignore"}
    if os.name != "nt":
        (venv / "data").symlink_to("/")
        expected.add("data")
    assert set(find_user_paths(venv)) == expected


def test_falsified_record_does_not_claim_user_files(venv):
    write_files(venv, "thesis.txt", "train.py")
    rows = f"{UP}thesis.txt,sha256=x,9999\n{UP}thesis.txt,,\n{UP}../env/train.py,,\n"
    record = next(site(venv).glob("other-*.dist-info/RECORD"))
    record.write_text(record.read_text("utf-8") + rows, "utf-8")
    assert find_user_paths(venv) == ["thesis.txt", "train.py"]


def test_files_outside_an_environment_belong_to_the_user(tmp_path):
    write_files(tmp_path, "thesis/chapter", "bin/activate")
    assert find_user_paths(tmp_path) == ["bin", "thesis"]


def test_only_copies_of_the_base_python_are_owned(tmp_path):
    base = write_files(tmp_path / "portable", "python3.dll", "ffmpeg.dll")
    venv = write_files(tmp_path / "env", "Scripts/python3.dll", "Scripts/own.dll")
    (venv / "pyvenv.cfg").write_text(f"home = {base}\n", "utf-8")
    (venv / "Scripts" / "ffmpeg.dll").write_text("another build", "utf-8")
    assert find_user_paths(venv) == ["Scripts/ffmpeg.dll", "Scripts/own.dll"]


def test_edited_lock_and_pip_settings_are_user_files(tmp_path):
    venv = make_environment(tmp_path / ".venv", "ours")
    # This file resembles gpuinstall's own.
    (venv / "pip.conf").write_text("[install]\nconstraint = file:///srv/team.txt\n")
    assert find_user_paths(venv) == ["pip.conf"]
    (venv / "pip.conf").unlink()
    write_guard(venv, "pylock.cu126.toml", ["torch==2.14.1"], ("/srv/mine.txt",))
    assert find_user_paths(venv) == []
    start = f"{SITE}/_gpuinstall.pth"
    for name in (start, "gpuinstall-constraints.txt", "pylock.cu126.toml"):
        with (venv / name).open("a", encoding="utf-8") as file:
            file.write("six==1.0\n")
    (venv / "pylock.mine.toml").touch()
    assert set(find_user_paths(venv)) == {
        "gpuinstall-constraints.txt",
        start,
        "pylock.cu126.toml",
        "pylock.mine.toml",
    }


def add_package(root, name, files):
    """Write the RECORD of a package as uv does, with texts as digests."""
    rows = [f"{path},sha256={text},{len(text)}" for path, text in files.items()]
    record = root / SITE / f"{name}-1.0.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("\n".join([*rows, f"{name}-1.0.dist-info/RECORD,,"]), "utf-8")


REFUSED = {
    f"{UP}pyvenv.cfg": "evil 1.0 would overwrite pyvenv.cfg, which belongs to the environment itself",
    f"{UP}gpuinstall.json": "evil 1.0 would overwrite gpuinstall.json, which belongs to the environment itself",
    f"{UP}pip.conf": "evil 1.0 would overwrite pip.conf, which belongs to the environment itself",
    f"{UP}pylock.cu126.toml": "evil 1.0 would overwrite pylock.cu126.toml, which belongs to the environment itself",
    f"{UP}bin/activate": "evil 1.0 would overwrite bin/activate, which belongs to the environment itself",
    f"{UP}bin/activate.fish": "evil 1.0 would overwrite bin/activate.fish, which belongs to the environment itself",
    f"{UP}CACHEDIR.TAG": "evil 1.0 would overwrite CACHEDIR.TAG, which belongs to the environment itself",
    f"{UP}.lock": "evil 1.0 would overwrite .lock, which belongs to the environment itself",
    f"{UP}bin/𝜋thon": "evil 1.0 would overwrite bin/𝜋thon, which belongs to the environment itself",
    f"{UP}Scripts/PythonW.exe": "evil 1.0 would overwrite Scripts/PythonW.exe, which belongs to the environment itself",
    f"{UP}bin/python3.12": "evil 1.0 would overwrite bin/python3.12, which belongs to the environment itself",
    "./_virtualenv.py": f"evil 1.0 would overwrite {SITE}/_virtualenv.py, which belongs to the environment itself",
    f"{UP}{SITE}/six-2.dist-info/RECORD": f"evil 1.0 would write {SITE}/six-2.dist-info/RECORD, metadata of another package",
    "torch-2.8.3.dist-info/METADATA": f"evil 1.0 would write {SITE}/torch-2.8.3.dist-info/METADATA, metadata of another package",
    "six.egg-info/PKG-INFO": f"evil 1.0 would write {SITE}/six.egg-info/PKG-INFO, metadata of another package",
    "/etc/passwd": "the RECORD of evil 1.0 lists /etc/passwd, which is outside the environment",
    f"{UP}../x": f"the RECORD of evil 1.0 lists {UP}../x, which is outside the environment",
    f"a/../{UP}../../x": f"the RECORD of evil 1.0 lists a/../{UP}../../x, which is outside the environment",
}
TAKEN = (
    "evil/__init__.py",
    "evil/_vendor/six-1.0.dist-info/METADATA",
    f"{UP}bin/evil",
    f"{UP}bin/activate-global-python-argcomplete",
    f"{UP}share/man/man1/evil.1",
    f"{UP}etc/jupyter/evil.json",
    "evil..py",
)


def test_package_files_at_forbidden_paths_are_rejected(tmp_path):
    wrong = {}
    expected = {**REFUSED, **dict.fromkeys(TAKEN)}
    for number, (path, message) in enumerate(expected.items()):
        root = tmp_path / str(number)
        add_package(root, "evil", {path: "x"})
        [package] = read_packages([root / SITE])
        found = find_misplaced_file(package, root)
        if found != message:
            wrong[path] = found
    assert wrong == {}
