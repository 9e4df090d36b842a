"""People stand in a folder: what lies there is what is installed, by whichever command, and it is said."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import tomli

from gpuinstall import process
from tests.frozen import GPUINSTALL
from tests.lab.driver import FakeDriver
from tests.lab.projects import make_project
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.fixtures import Play
    from tests.lab.index import StandInIndex

NOTHING = FakeDriver(nvml_missing=True, cu_missing=True)
LOCK = "pylock.cpu.toml"
PROJECT = '[project]\nname = "thing"\nversion = "1"\ndependencies = ["numpy"]\n[dependency-groups]\ndev = ["cowsay"]\n'

POETRY = """\
[tool.poetry]
package-mode = false
[tool.poetry.dependencies]
python = "^3.9"
numpy = "^2.0"
[tool.poetry.group.dev.dependencies]
cowsay = "*"
"""


@pytest.fixture
def workshop(stand_in: StandInIndex, tmp_path: Path, play: Play) -> Workshop:
    play(NOTHING)
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


def names(workshop: Workshop) -> set[str]:
    return {package["name"] for package in tomli.loads(workshop.lock(LOCK))["packages"]}


def write(workshop: Workshop, name: str, text: str) -> None:
    (workshop.folder / name).write_text(text, encoding="utf-8")


def projects(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.startswith("Project")]


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("requirements.txt", "numpy\ncowsay\n", "Project requirements.txt: 2 requirements"),
        ("pyproject.toml", PROJECT, "Project pyproject.toml: 2 requirements and group dev"),
        (
            "pyproject.toml",
            POETRY,
            "Project pyproject.toml: 2 requirements",
        ),
        (
            "environment.yml",
            "dependencies:\n  - pip:\n    - numpy\n    - cowsay\n",
            "Project environment.yml: 2 requirements",
        ),
    ],
)
def test_what_lies_in_the_folder_is_installed_and_said_before_anything_happens(
    workshop: Workshop, file: str, text: str, line: str
) -> None:
    write(workshop, file, text)
    planned = workshop.run("plan")
    assert projects(planned.err) == [line]
    assert "cowsay" in planned.out
    locked = workshop.run("lock")
    assert (locked.status, projects(locked.err)) == (0, [line])
    held = names(workshop)
    assert held >= {"torch", "numpy", "cowsay"}
    done = workshop.run("install")
    assert (done.status, projects(done.err)) == (0, [line])
    assert names(workshop) == held
    assert workshop.python("import torch, numpy, cowsay; print('all')") == "all"


def test_the_first_command_of_all_takes_the_file_too(workshop: Workshop) -> None:
    """``bootstrap.py`` ends in ``gpuinstall install``: the very words it starts."""
    write(workshop, "requirements.txt", "cowsay\n")
    done = process.run([*GPUINSTALL, "install"], env=workshop.environment, cwd=workshop.folder)
    assert done.ok, done.err
    assert "cowsay" in names(workshop)


def test_doctor_calls_no_environment_healthy_that_lacks_what_the_file_asks_for(workshop: Workshop) -> None:
    write(workshop, "requirements.txt", "numpy\n")
    workshop.document("install", "--no-project", "torch")
    assert "cowsay" not in names(workshop)
    findings = {one["code"]: one["title"] for one in workshop.document("doctor")["data"]["findings"]}
    assert "numpy is not installed" in findings["request-unmet"]


def test_a_line_that_comes_or_goes_in_the_file_comes_and_goes(workshop: Workshop) -> None:
    write(workshop, "requirements.txt", "numpy\ncowsay\n")
    workshop.document("lock")
    write(workshop, "requirements.txt", "numpy\n")
    checked = workshop.document("lock", "--check", "--offline", exit_code=6)["data"]["locks"][0]
    assert checked["reasons"][0]["code"] == "inputs-changed"
    workshop.document("lock", "torch<2.15")
    assert "cowsay" not in names(workshop)
    workshop.document("lock")
    assert tomli.loads(workshop.lock(LOCK))["tool"]["gpuinstall"]["inputs"] == ["numpy", "torch<2.15"]
    error = workshop.document("remove", "numpy", exit_code=2)["errors"][0]
    assert (error["code"], "-r" in error["hint"]) == ("requested-elsewhere", False)


def test_a_project_that_is_a_package_is_installed_where_it_lies(workshop: Workshop) -> None:
    make_project(workshop.folder, "our-thing", requires=["cowsay"])
    done = workshop.run("install")
    assert done.status == 0, done.err
    assert projects(done.err) == ["Project pyproject.toml: 1 requirement; our-thing itself, editable"]
    assert workshop.python("import our_thing, cowsay; print(our_thing.__file__)") == str(
        workshop.folder / "our_thing.py"
    )
    assert workshop.document("install")["data"]["environment"]["status"] == "none"
    assert workshop.document("lock", "--check", "--offline")["status"] == "success"


def test_what_pip_would_be_told_of_sources_is_named_and_the_rest_of_the_file_installed(workshop: Workshop) -> None:
    write(workshop, "requirements.txt", "--extra-index-url https://index.example/\nnumpy --hash=sha256:0\n")
    done = workshop.run("lock")
    assert done.status == 0, done.err
    assert "requirements.txt: --extra-index-url, --hash is not read here" in " ".join(done.err.split())
    assert "numpy" in names(workshop)
    refused = workshop.document("lock", "-r", "requirements.txt", exit_code=2)["errors"][0]
    assert refused["code"] == "requirements-option"


def test_plan_reads_what_was_asked_for_before(workshop: Workshop) -> None:
    workshop.document("lock", "torch==2.13.0", "numpy")
    assert workshop.document("plan")["data"]["build"]["torch"] == "2.13.0"
    assert workshop.document("plan", "--no-project")["data"]["build"]["torch"] == "2.13.0"
    shutil.rmtree(workshop.folder)
    workshop.folder.mkdir()
    assert workshop.document("plan")["data"]["build"]["torch"] != "2.13.0"


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.cfg", "environment.yml", "pylock.theirs.toml"])
def test_a_file_of_another_form_is_named_with_r(workshop: Workshop, name: str) -> None:
    forms = {
        "pyproject.toml": PROJECT,
        "setup.cfg": "[options]\ninstall_requires =\n    numpy\n",
        "environment.yml": "dependencies:\n- pip:\n  - numpy\n",
        "pylock.theirs.toml": '[[packages]]\nname = "numpy"\nversion = "2.3.4"\n',
    }
    other = workshop.folder / "there"
    other.mkdir()
    (other / name).write_text(forms[name], encoding="utf-8")
    workshop.document("lock", "-r", f"there/{name}")
    assert "numpy" in names(workshop)
    assert workshop.document("lock", "--check", "--offline")["status"] == "success"
