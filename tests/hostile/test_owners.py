"""Tests that files of another user are read as an untrusted folder."""

import os

import pytest

from tests.lab.nobody import NOBODY

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.name != "posix" or os.getuid() != 0,
        reason="only root can change a file's owner",
    ),
]

LIB = '[project]\nname = "lib"\nversion = "1"\n'
BACKEND = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'
SOURCE = '[project]\nname = "app"\nversion = "1"\ndependencies = ["lib"]\n[tool.uv.sources]\nlib = { workspace = true }\n'
INDEX = '[[index]]\nurl = "https://index.example/simple"\n'
FILES = {
    "included requirements": (
        {"requirements.txt": "-r sub/x.txt\n", "sub/x.txt": "-e ./lib\n"},
        "sub/x.txt",
    ),
    "constraints": (
        {"requirements.txt": "torch\nlib\n-c x.txt\n", "x.txt": "lib @ ./lib\n"},
        "x.txt",
    ),
    "settings of a parent": ({"requirements.txt": "-e ./lib\n"}, "../uv.toml"),
    "a project by its path": ({"requirements.txt": "-e ./lib\n"}, "lib"),
    "a build file": ({"requirements.txt": "-e ./lib\n"}, "lib/setup.py"),
    "a workspace member": (
        {"pyproject.toml": f'{SOURCE}[tool.uv.workspace]\nmembers = ["lib"]\n'},
        "lib",
    ),
    "the target of a link": ({"requirements.txt": "-e ./lib\n"}, "lib/pyproject.toml"),
    "the requirements": ({"requirements.txt": "-e ./lib\n"}, "requirements.txt"),
}
"""The files of a folder, and the one that belongs to another user."""


def write_files(folder, form):
    """Write the files of a case, and return another user's one."""
    files, foreign = FILES[form]
    project = f'{LIB}dynamic = ["dependencies"]\n{BACKEND}'
    backend = f"open({str(folder.parent / 'executed')!r}, 'w').close()\n"
    own = {"lib/own.py": backend, "lib/setup.py": "", "../uv.toml": INDEX}
    for name, text in {**own, "lib/real": project, **files}.items():
        if name != "../uv.toml" or name == foreign:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, "utf-8")
    (folder / "lib" / "pyproject.toml").symlink_to("real")
    path = folder / foreign
    os.chown(path, NOBODY, NOBODY)
    return path


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("words", ["lock --target cpu", "plan"])
def test_another_users_file_makes_the_folder_untrusted(here, form, words):
    path = write_files(here.folder, form)

    done = here.run(*words.split())

    assert done.status == 2, done.err
    assert f"{path.name} belongs to nobody" in done.err
    assert "GPUINSTALL_TRUST_FOLDER=0" not in done.err
    assert not (here.folder.parent / "executed").exists()


def test_variable_trusts_another_users_file(here):
    write_files(here.folder, "included requirements")

    done = here.having(GPUINSTALL_TRUST_FOLDER="1").run("lock", "--target", "cpu")

    assert (here.folder.parent / "executed").exists(), done.err


def test_roots_files_in_another_users_folder_are_trusted(here):
    write_files(here.folder, "included requirements")
    for path in here.folder.rglob("*"):
        os.chown(path, 0, 0)
    os.chown(here.folder.parent, NOBODY, NOBODY)

    done = here.run("lock", "--target", "cpu")

    assert (here.folder.parent / "executed").exists(), done.err
