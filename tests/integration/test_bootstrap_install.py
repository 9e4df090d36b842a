"""bootstrap.py to the end: an environment and a lock, torch from the stand-in index, on a machine without a GPU."""

import subprocess

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.clone import interpreter
from tests.lab.index import StandInIndex
from tests.lab.releases import LINUX, catalog_index


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = catalog_index(
        tmp_path_factory.mktemp("index"), ["2.14.1", "2.15.0"], platforms=[LINUX]
    )
    with StandInIndex(folder) as served:
        yield served


@pytest.mark.parametrize("version", mostly_heavy(["3.8", "3.12"], ["3.8"]))
def test_it_ends_in_an_environment_and_a_lock_and_git_sees_neither(
    version, equipped, clone, tmp_path, index
):
    python, person = interpreter(version), equipped.copied(tmp_path / "home")
    assert person.run(python, clone / "bootstrap.py", "--help").returncode == 0
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], check=True)

    done = person.run(python, clone / "bootstrap.py", cwd=clone, settings=index.environment())

    assert done.returncode == 0, done.stderr
    assert "Ready" in done.stdout
    assert (clone / "pylock.cpu.toml").exists()
    assert person.run(clone / ".venv" / "bin" / "python", "-c", "import torch").returncode == 0
    assert (
        subprocess.run([*git, "status", "--porcelain"], capture_output=True, check=True).stdout
        == b""
    )
