"""Packages that say what they require only when their own code runs: named before it does, refused where asked."""

import re
import shutil

import pytest
import tomli

from tests.lab.driver import NO_GPU
from tests.lab.projects import commit, make_project, make_silent_sdist
from tests.lab.setuptools import make_setup_project, make_setuptools
from tests.lab.wheels import make_wheel

ASKED = ("plain", "--backend", "cpu")


@pytest.fixture
def ran(tmp_path):
    """What the code of the packages writes to."""
    return tmp_path / "ran"


@pytest.fixture
def workshop(workshop, stand_in_folder, ran, play):
    """plain needs strange, which needs odd; those two have no wheel, and newer has one of its old version alone."""
    play(NO_GPU)
    served = stand_in_folder / "simple"
    make_wheel(served, "plain", "1.0", requires=["strange"])
    make_silent_sdist(served, "strange", "1.0", ["odd"], ran=ran)
    make_silent_sdist(served, "odd", "1.0", ran=ran)
    make_wheel(served, "newer", "1.0")
    make_silent_sdist(served, "newer", "2.0", ran=ran)
    return workshop


@pytest.mark.parametrize("command", [("lock", "-q", *ASKED), ("plan", "--live", *ASKED)])
def test_each_is_named_before_its_code_runs(workshop, ran, command):
    with workshop.start(*command) as running:
        seen: list[str] = []
        for line in running.stderr or ():
            seen += [line.split()[1]] if "its build code runs" in line else []
            assert set(_lines(ran)) <= {f"{name}-1.0" for name in seen}, line
    assert running.returncode == 0
    assert seen == ["strange", "odd"]
    assert set(_lines(ran)) == {"strange-1.0", "odd-1.0"}


@pytest.mark.heavy
@pytest.mark.parametrize("words", [(), ("--only-binary",)])
def test_a_package_without_a_name_is_built_for_it_once_announced(
    workshop, stand_in_folder, ran, words
):
    make_setuptools(stand_in_folder / "simple")
    make_setup_project(workshop.folder / "the first", "first", "filelock", ran=ran)
    make_setup_project(workshop.folder / "an other", "second", "typing-extensions", ran=ran)
    make_setup_project(workshop.folder / "repository", "third", "numpy", ran=ran)
    commit(workshop.folder / "repository")
    repository = f"git+file://{workshop.folder}/repository"
    done = workshop.run(
        "lock", "-e", "./the first", "./an other", repository, "--backend", "cpu", *words
    )
    assert done.status == 0, done.err
    announced = re.findall("^Code +(.+) has no metadata", done.err, re.MULTILINE)
    assert announced == [
        f"{workshop.folder}/an other",
        repository,
        f"{workshop.folder}/the first",
    ], done.err
    lock = tomli.loads(workshop.lock("pylock.cpu.toml"))
    packages = {package["name"]: package for package in lock["packages"]}
    assert packages.keys() >= {"first", "second", "third", "filelock", "typing-extensions", "numpy"}
    assert packages["first"]["directory"] == {"path": "the first", "editable": True}
    assert packages["second"]["directory"]["path"] == "an other"
    assert workshop.document("sync")["data"]["environment"]["status"] == "built"


@pytest.mark.heavy
def test_what_is_built_with_torch_has_a_real_one_and_the_python_of_the_lock(
    workshop, stand_in_folder, ran
):
    make_silent_sdist(
        stand_in_folder / "simple", "restorer", "1.0", ["torch"], ran=ran, built_with=["torch"]
    )
    for python in ("3.10", "3.11"):
        done = workshop.run("lock", "restorer", "--backend", "cpu", "--python", python, "--upgrade")
        assert done.status == 0, done.err
        assert ran.read_text().splitlines()[-1] == f"restorer-1.0 {python}"
        shutil.rmtree(workshop.caches / "uv")


def test_only_binary_refuses_it_and_nothing_runs(workshop, ran):
    error = workshop.refusal("lock", *ASKED, "--only-binary", exit_code=3)
    assert error["code"] == "only-binary"
    assert "strange" in error["message"]
    assert not ran.exists()


@pytest.mark.heavy
def test_only_binary_is_a_setting_too(workshop, ran):
    (workshop.folder / "pyproject.toml").write_text(
        "[tool.gpuinstall]\nonly-binary = true\n", "utf-8"
    )
    for command in (("install", *ASKED), ("plan", "--live", *ASKED), ("lock", *ASKED)):
        assert workshop.refusal(*command, exit_code=3)["code"] == "only-binary"
    assert not ran.exists()


def test_only_binary_takes_the_newest_that_has_a_wheel(workshop, ran):
    assert workshop.run("lock", "newer", "--backend", "cpu", "--only-binary").status == 0
    assert 'name = "newer"\nversion = "1.0"' in workshop.lock("pylock.cpu.toml")
    assert not ran.exists()


def test_only_binary_does_not_mean_what_is_asked_for_by_its_place(workshop, ran):
    make_project(workshop.folder / "mine", "mine", "1.0")
    done = workshop.run("lock", "./mine", "--backend", "cpu", "--only-binary")
    assert done.status == 0, done.err
    assert not ran.exists()


@pytest.mark.heavy
def test_a_lock_with_a_source_is_not_synced_where_only_wheels_are_wanted(workshop, ran):
    assert workshop.run("lock", *ASKED).status == 0
    ran.unlink()
    error = workshop.refusal("sync", "--only-binary", exit_code=3)
    assert (error["code"], "odd 1.0" in error["message"]) == ("only-binary", True)
    assert not ran.exists()


def _lines(file):
    """The packages whose code ran."""
    return (
        [line.split()[0] for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    )


@pytest.mark.heavy
def test_a_project_whose_build_requires_torch_is_locked(workshop, stand_in_folder):
    make_setuptools(stand_in_folder / "simple")
    make_setup_project(workshop.folder, "thing", "numpy")
    table = '[build-system]\nrequires = ["setuptools", "torch"]\nbuild-backend = "setuptools.build_meta"\n'
    (workshop.folder / "pyproject.toml").write_text(table, "utf-8")
    done = workshop.run("lock", "--backend", "cpu")
    assert done.status == 0, done.err
    lock = tomli.loads(workshop.lock("pylock.cpu.toml"))
    assert {"thing", "torch", "numpy"} <= {package["name"] for package in lock["packages"]}
