"""bootstrap.py to the end: an environment and a lock, torch from the stand-in index, on a machine without a GPU."""

import subprocess

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.clone import interpreter
from tests.lab.index import StandInIndex
from tests.lab.pace import within
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


POETRY = '[tool.poetry]\npackage-mode = false\n[tool.poetry.dependencies]\npython = "^3.10"\nnumpy = "^2"\ntqdm = "*"\n'
CONDA = "dependencies:\n  - python=3.12\n  - scipy=1.16\n  - ffmpeg\n  - pip:\n      - numpy\n      - tqdm\n"
NO_WHEEL = "environment.yml: no wheel is known of ffmpeg; if needed: conda install ffmpeg"


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "text", "count", "also"),
    [
        ("requirements.txt", "numpy\ntqdm\n", 2, ""),
        ("pyproject.toml", POETRY, 2, ""),
        ("environment.yml", CONDA, 3, NO_WHEEL),
    ],
)
def test_it_takes_what_lies_in_the_folder(
    *,
    name,
    text,
    count,
    also,
    equipped,
    clone,
    tmp_path,
    index,
):
    project = tmp_path / "project"
    project.mkdir()
    (project / name).write_text(text, encoding="utf-8")
    bootstrap, settings = clone / "bootstrap.py", index.environment()
    done = equipped.run(interpreter("3.12"), bootstrap, "plan", cwd=project, settings=settings)
    said = " ".join(done.stderr.split())
    assert done.returncode == 0, said
    assert f"Project {name}: {count} requirements" in said
    assert also in said
    assert "tqdm" in done.stdout


@pytest.mark.heavy
def test_a_second_run_asks_nobody_and_changes_nothing(equipped, clone, tmp_path, index):
    python, project = interpreter("3.12"), tmp_path / "project"
    project.mkdir()
    first = equipped.run(python, clone / "bootstrap.py", cwd=project, settings=index.environment())
    assert first.returncode == 0, first.stderr
    lock, made = (
        (project / "pylock.cpu.toml").read_bytes(),
        (project / ".venv" / "pyvenv.cfg").stat().st_ino,
    )
    index.forget()

    with within(3):
        again = equipped.run(
            python, clone / "bootstrap.py", cwd=project, settings=index.environment()
        )

    assert again.returncode == 0, again.stderr
    assert index.log == []
    assert (project / "pylock.cpu.toml").read_bytes() == lock
    assert (project / ".venv" / "pyvenv.cfg").stat().st_ino == made


@pytest.mark.heavy
def test_a_lock_in_the_folder_is_what_is_installed(equipped, clone, tmp_path, index):
    python, mine, theirs = interpreter("3.12"), tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    older = equipped.run(
        python, clone / "bootstrap.py", "torch<2.15", cwd=mine, settings=index.environment()
    )
    assert older.returncode == 0, older.stderr
    (theirs / "pylock.cpu.toml").write_bytes((mine / "pylock.cpu.toml").read_bytes())

    done = equipped.run(python, clone / "bootstrap.py", cwd=theirs, settings=index.environment())

    assert done.returncode == 0, done.stderr
    asked = "import torch; print(torch.__version__)"
    assert equipped.run(theirs / ".venv" / "bin" / "python", "-c", asked).stdout.startswith(
        "2.14.1"
    )


@pytest.mark.heavy
def test_the_exit_status_is_that_of_install(equipped, clone, tmp_path, index):
    python, project = interpreter("3.12"), tmp_path / "project"
    project.mkdir()
    refused = equipped.run(
        python, clone / "bootstrap.py", "torch==1.0", cwd=project, settings=index.environment()
    )
    unknown = equipped.run(python, clone / "bootstrap.py", "--no-such-option", cwd=project)

    assert (refused.returncode, unknown.returncode) == (3, 2), refused.stderr + unknown.stderr
    assert list(project.iterdir()) == []
