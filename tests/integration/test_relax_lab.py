"""Old pins on a new card: ``--relax`` takes what is nearest, says what moved, and the lock records it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import tomli

from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.fixtures import Play
from tests.lab.index import StandInIndex
from tests.lab.projects import make_project
from tests.lab.wheels import make_sdist, make_wheel
from tests.lab.workshop import Workshop

RTX_5090 = FakeDriver(
    (FakeGpu("NVIDIA GeForce RTX 5090", cc="12.0", memory_mib=32607, pci="10de:2b85"),),
    driver="580.95.05",
    cuda=13000,
)
LOCK = "pylock.cu128.toml"
JULY_2023 = 1689350400
"""14 July, in seconds since 1970."""
REQUIREMENTS = """\
torch==2.3.1
torchvision==0.18.1
painter==1
brush==1
easel==1
cowsay
"""
PINS_OF_PROJECT = ("torch==2.3.1", "torchvision==0.18.1", "painter==1", "brush==1")
EXTRA = '[project.optional-dependencies]\nstudy = ["easel==1"]\n'


@pytest.fixture
def workshop(stand_in: StandInIndex, stand_in_folder: Path, tmp_path: Path, play: Play) -> Workshop:
    play(RTX_5090)
    simple = stand_in_folder / "simple"
    make_wheel(simple, "painter", "1", requires=["brush>=2", "torch"])
    for version in ("1", "2", "3"):
        make_wheel(simple, "brush", version)
    for version in ("1", "2"):
        make_wheel(simple, "easel", version)
    (tmp_path / "project").mkdir()
    made = Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())
    (made.folder / "requirements.txt").write_text(REQUIREMENTS, encoding="utf-8")
    return made


def locked_versions(workshop: Workshop) -> dict[str, str]:
    packages = tomli.loads(workshop.lock(LOCK))["packages"]
    return {package["name"]: package.get("version", "") for package in packages}


def test_a_refusal_names_relax_and_what_it_would_give(workshop):
    refused = workshop.run("install")

    assert refused.status == 3
    assert "do    Run it again with --relax: torch 2.7.1, the nearest that runs here" in refused.err


def test_the_nearest_torch_is_installed_and_the_fewest_pins_give_way(workshop):
    done = workshop.run("install", "--relax")

    assert done.status == 0, done.err
    said = " ".join(done.err.split())
    assert "torch 2.7.1+cu128 in place of torch==2.3.1" in said
    assert "torchvision 0.22.1+cu128 in place of torchvision==0.18.1" in said
    assert "brush 3 in place of brush==1: " in said
    assert "are the newest: no source tells the date of the pins" in said
    versions = locked_versions(workshop)
    assert (versions["torch"], versions["painter"], versions["easel"]) == ("2.7.1+cu128", "1", "1")
    assert tomli.loads(workshop.lock(LOCK))["tool"]["gpuinstall"]["relaxed"] == {
        "torch": "torch==2.3.1",
        "torchvision": "torchvision==0.18.1",
        "brush": "brush==1",
    }
    assert (workshop.folder / "requirements.txt").read_text("utf-8") == REQUIREMENTS


def test_a_relaxed_lock_serves_elsewhere_and_only_those_who_relax(workshop):
    workshop.document("lock", "--relax")
    lock = workshop.lock(LOCK)

    assert workshop.run("lock", "check").status == 0
    assert workshop.run("sync").status == 0
    again = workshop.document("install", "--relax")["data"]["environment"]
    assert again["status"] == "none"
    assert workshop.document("lock", "--relax")["data"]["locks"][0]["status"] == "unchanged"
    assert workshop.document("install", exit_code=3)["errors"][0]["code"] == "no-code"
    assert workshop.lock(LOCK) == lock


def test_a_plan_calls_the_nearest_torch_nothing_but_that(workshop):
    done = workshop.run("plan", "--relax")

    assert done.status == 0, done.err
    said = " ".join(done.out.split())
    assert "torch 2.7.1 is the nearest to torch==2.3.1, torchvision==0.18.1: " in said
    assert "newest" not in said


def say_dates(stand_in: StandInIndex, *old_files: str):
    """Let the index say dates: of the files that match, and of what the requests pin, July 2023, else today's."""
    for pattern in ("easel-1-*", "torch-2.3.1-*", *old_files):
        for file in (stand_in.folder / "simple").glob(pattern):
            os.utime(file, (JULY_2023, JULY_2023))
    stand_in.habits = replace(stand_in.habits, dates=True)


def test_a_wheel_newer_than_the_pins_does_not_forbid_to_build(workshop, stand_in, stand_in_folder):
    simple = stand_in_folder / "simple"
    make_wheel(simple, "kindling", "2")
    make_sdist(simple, "kindling", "1")
    say_dates(stand_in, "kindling-1.*")
    requirements = "torch==2.3.1\neasel==1\nkindling\n"
    (workshop.folder / "requirements.txt").write_text(requirements, encoding="utf-8")

    done = workshop.run("lock", "--relax")

    assert done.status == 0, done.err
    assert "are as of 2023-07-15" in done.err
    assert locked_versions(workshop)["kindling"] == "1"


@pytest.mark.parametrize("place", [".", "./paper[study]"])
def test_the_pins_of_a_project_in_a_folder_give_way(workshop, place):
    folder = workshop.folder / place.partition("[")[0]
    make_project(folder, "paper", "1.0", PINS_OF_PROJECT, pyproject=EXTRA)
    (workshop.folder / "requirements.txt").write_text(f"-e {place}\n", encoding="utf-8")

    done = workshop.run("install", "--relax")

    assert done.status == 0, done.err
    said = " ".join(done.err.split())
    assert "torch 2.7.1+cu128 in place of torch==2.3.1" in said
    assert "brush 3 in place of brush==1: " in said
    assert ("easel" in locked_versions(workshop)) == place.endswith("[study]")
    assert workshop.run("lock", "check").status == 0
    again = workshop.document("install", "--relax")["data"]["environment"]
    assert again["status"] == "none"


def test_an_extension_goes_with_the_torch_that_is_taken_and_not_with_the_date(
    workshop, stand_in, stand_in_folder
):
    for version in ("0.42.0", "0.48.1"):
        make_wheel(stand_in_folder / "simple", "bitsandbytes", version, requires=["torch"])
    say_dates(stand_in, "bitsandbytes-0.42.0-*")
    requirements = "torch==2.3.1\neasel==1\nbitsandbytes\n"
    (workshop.folder / "requirements.txt").write_text(requirements, encoding="utf-8")

    done = workshop.run("lock", "--relax")

    assert done.status == 0, done.err
    assert locked_versions(workshop)["bitsandbytes"] == "0.48.1"
