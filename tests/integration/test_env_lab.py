"""``gpuinstall env``, with environments made from the stand-in index."""

from dataclasses import replace

import pytest

from gpuinstall.environments.ownership import user_paths
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.workshop import Workshop


@pytest.fixture
def workshop(stand_in, tmp_path, play):
    play(FakeDriver((FakeGpu(),)))
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


def code(workshop, *arguments):
    return workshop.document("env", *arguments, exit_code=2)["errors"][0]["code"]


@pytest.mark.heavy
def test_environments_are_listed_from_anywhere_and_removed_with_their_previous_ones(
    workshop,
):
    assert workshop.document("env", "list")["data"] == {"environments": []}
    workshop.document("install", "torch==2.13.0")
    workshop.document("install", "torch==2.14.1")
    elsewhere = replace(workshop, folder=workshop.folder.parent)
    [row] = elsewhere.document("env", "list")["data"]["environments"]
    assert (row["path"], row["torch"], row["status"]) == (
        str(workshop.folder / ".venv"),
        "2.14.1+cu130",
        "passed",
    )
    assert "torch 2.14.1+cu130" in elsewhere.run("env", "list").out
    removed = workshop.document("env", "remove", "--previous", "--yes")["data"]["removed"]
    assert [entry["path"] for entry in removed] == [row["previous"]]
    assert workshop.entries() == {".venv", "pylock.cu130.toml"}
    assert code(workshop, "remove", "--previous", "--yes") == "no-previous"
    assert code(workshop, "remove") == "not-confirmed"
    assert "Removed     .venv" in workshop.run("env", "remove", "--yes").out
    assert workshop.entries() == {"pylock.cu130.toml"}
    assert code(workshop, "remove") == "environment-missing"
    assert elsewhere.document("env", "list")["data"] == {"environments": []}


@pytest.mark.heavy
def test_previous_environments_are_pruned_from_anywhere_if_that_is_confirmed(
    workshop,
):
    assert workshop.document("env", "prune")["data"] == {"removed": []}
    workshop.document("install", "torch==2.13.0")
    workshop.document("install", "torch==2.14.1")
    elsewhere = replace(workshop, folder=workshop.folder.parent)
    assert code(elsewhere, "prune") == "not-confirmed"
    stamps = workshop.caches / "xdg" / "gpuinstall" / "stamps"
    assert len(list(stamps.iterdir())) == 2
    removed = elsewhere.document("env", "prune", "--yes")["data"]["removed"]
    assert len(list(stamps.iterdir())) == 1, "of the environment that stays"
    previous = workshop.folder / ".venv.gpuinstall" / "previous"
    assert [entry["path"] for entry in removed] == [str(previous)]
    assert workshop.entries() == {".venv", "pylock.cu130.toml"}


def test_only_what_is_ours_is_removed(workshop):
    thesis = workshop.folder / "thesis"
    (thesis / "conda-meta").mkdir(parents=True)
    (thesis / "pyvenv.cfg").touch()
    assert code(workshop, "remove", "--venv", "thesis") == "not-ours"
    assert code(workshop, "remove", "--venv", "thesis", "--yes") == "not-ours"
    workshop.document("install", "torch==2.13.0")
    venv = workshop.folder / ".venv"
    assert user_paths(venv) == (), "what an installation writes is not the user's"
    (venv / "notebooks").mkdir()
    (venv / "notebooks" / "a.ipynb").touch()
    changed = workshop.run("install", "torch==2.14.1")
    assert "Moved       notebooks, which no installer wrote" in changed.err
    (venv / "train.py").touch()
    packages = next((venv / "lib").glob("python*/site-packages"))
    (packages / "cowsay-6.1.dist-info").mkdir()
    assert code(workshop, "remove") == "users-packages"
    removed = workshop.run("env", "remove", "--yes", "--quiet")
    [train] = workshop.folder.glob(".venv.kept/*/.venv/train.py")
    assert f"Kept        {train.parent}, complete: train.py in it" in removed.err
    [notes] = workshop.folder.glob(".venv.kept/*/previous/notebooks/a.ipynb")
    assert f"Kept        {notes.parent.parent}, complete: notebooks in it" in removed.err
    assert workshop.entries() == {".venv.kept", "pylock.cu130.toml", "thesis"}
    assert {path.name for path in thesis.iterdir()} == {"conda-meta", "pyvenv.cfg"}
