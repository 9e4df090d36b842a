"""``gpuinstall env``, with environments made from the stand-in index."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.fixtures import Play
    from tests.lab.index import StandInIndex


@pytest.fixture
def workshop(stand_in: StandInIndex, tmp_path: Path, play: Play) -> Workshop:
    play(FakeDriver((FakeGpu(),)))
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


def code(workshop: Workshop, *arguments: str) -> str:
    found: str = workshop.document("env", *arguments, exit_code=2)["errors"][0]["code"]
    return found


def test_environments_are_listed_from_anywhere_and_removed_with_their_previous_ones(workshop: Workshop) -> None:
    assert workshop.document("env", "list")["data"] == {"environments": []}
    workshop.document("install", "torch==2.13.0")
    workshop.document("install", "torch==2.14.1")
    elsewhere = replace(workshop, folder=workshop.folder.parent)
    [row] = elsewhere.document("env", "list")["data"]["environments"]
    assert (row["path"], row["torch"], row["status"]) == (str(workshop.folder / ".venv"), "2.14.1+cu130", "passed")
    assert row["bytes"] > 0
    assert row["previous"]["bytes"] > 0
    assert "torch 2.14.1+cu130" in elsewhere.run("env", "list").out
    removed = workshop.document("env", "remove", "--previous", "--yes")["data"]["removed"]
    assert [entry["path"] for entry in removed] == [row["previous"]["path"]]
    assert workshop.entries() == {".venv", "pylock.cu130.toml"}
    assert code(workshop, "remove", "--previous", "--yes") == "no-previous"
    assert code(workshop, "remove") == "not-confirmed"
    assert "Removed     .venv" in workshop.run("env", "remove", "--yes").out
    assert workshop.entries() == {"pylock.cu130.toml"}
    assert code(workshop, "remove") == "environment-missing"
    assert elsewhere.document("env", "list")["data"] == {"environments": []}


def test_what_is_not_ours_is_not_removed(workshop: Workshop) -> None:
    (workshop.folder / "thesis").mkdir()
    (workshop.folder / "thesis" / "chapter").touch()
    assert code(workshop, "remove", "--venv", "thesis") == "not-ours"
    assert code(workshop, "remove", "--venv", "thesis", "--yes") == "not-ours"
    workshop.document("install")
    packages = next((workshop.folder / ".venv" / "lib").glob("python*/site-packages"))
    (packages / "cowsay-6.1.dist-info").mkdir()
    assert code(workshop, "remove") == "users-packages"
    assert (workshop.folder / ".venv" / "bin" / "python").exists()
    assert (workshop.folder / "thesis" / "chapter").exists()
    workshop.document("env", "remove", "--yes")
    assert workshop.entries() == {"pylock.cu130.toml", "thesis"}
