"""Programs come before torch: small ones in the stand-in default index, chosen with torch by real uv."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuinstall.base import process
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.request import Request
from gpuinstall.lock.lock import parse
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.request import LockRequest
from gpuinstall.lock.target import Target
from gpuinstall.sources import read_sources
from gpuinstall.sources.session import open_session
from gpuinstall.words import machine_in_words
from tests.frozen import frozen_catalog
from tests.lab.cases import mostly_heavy
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.index import StandInIndex
from tests.lab.wheels import make_sdist, make_wheel
from tests.lab.workshop import Workshop

RTX_4090 = ("--gpu", "RTX 4090", "--driver", "535.183.01")
H100 = ("--gpu", "H100", "--driver", "610.43.02")


@pytest.fixture
def workshop(stand_in: StandInIndex, tmp_path: Path) -> Workshop:
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


@pytest.fixture
def simple(stand_in_folder: Path) -> Path:
    """The files of the default index."""
    return stand_in_folder / "simple"


def locked(workshop: Workshop, *words: str) -> dict[str, str]:
    """Lock, and give the versions of the first lock."""
    made = workshop.document("lock", *words, "--upgrade", "--python", "3.12")["data"]["locks"]
    return parse("x", workshop.lock(made[0]["path"].rpartition("/")[2])).versions


def recorded(workshop: Workshop, gpu: str, driver: str) -> str:
    """Write the document of a machine into the folder; return its name."""
    name = f"{gpu}.json"
    machine = machine_in_words((gpu,), driver, None, None)
    (workshop.folder / name).write_text(json.dumps(machine.to_dict()), encoding="utf-8")
    return name


def locked_for(workshop: Workshop, program: str, *machines: str) -> dict[str, dict[str, str]]:
    """Lock for recorded machines, and give the versions of each target."""
    words = [word for name in machines for word in ("--machine", name)]
    made = workshop.document("lock", program, *words, "--upgrade", "--python", "3.12")["data"][
        "locks"
    ]
    return {
        each["target"]: parse("x", workshop.lock(f"pylock.{each['target']}.toml")).versions
        for each in made
    }


def live(workshop: Workshop, *words: str) -> dict[str, Any]:
    plan: dict[str, Any] = workshop.document("plan", "--live", *words, "--python", "3.12")["data"]
    return plan


def said(plan: dict[str, Any], code: str) -> list[str]:
    return [reason["message"] for reason in plan["reasons"] if reason["code"] == code]


@pytest.mark.parametrize(
    "words",
    mostly_heavy(
        [("painter",), ("painter", "torch"), ("torch", "painter"), ("torch>=2.7", "painter")],
        [("torch>=2.7", "painter")],
    ),
)
def test_a_program_that_wants_an_older_torch_is_not_made_older_for_a_newer_one(
    workshop, simple, words
):
    make_wheel(simple, "painter", "1.0", requires=["torch"])
    make_wheel(simple, "painter", "2.0", requires=["torch==2.13.0"])
    plan = live(workshop, *words, *RTX_4090)
    assert plan["build"]["torch"] == "2.13.0"
    assert said(plan, "held-back") == [
        "painter 2.0 requires torch 2.13.0; without it torch 2.14.1 would run here"
    ]
    over = next(
        found
        for found in plan["rejected"]
        if (found["torch"], found["backend"]) == ("2.14.1", "cu126")
    )
    assert (over["code"], over["message"]) == ("held-back", "painter 2.0 requires torch 2.13.0")
    found = locked(workshop, *words, *RTX_4090)
    assert (found["painter"], found["torch"]) == ("2.0", "2.13.0+cu126")


def test_the_newest_torch_never_makes_a_program_a_prerelease(workshop, simple):
    make_wheel(simple, "painter", "1.0", requires=["torch<=2.13.0"])
    make_wheel(simple, "painter", "1.1a20261020", requires=["torch"])
    found = locked(workshop, "painter", *RTX_4090)
    assert (found["painter"], found["torch"]) == ("1.0", "2.13.0+cu126")


def test_a_program_is_the_newest_of_those_whose_torch_runs_here(workshop, simple):
    for version, torch in (
        ("1.0", ""),
        ("2.0", "==2.10.0"),
        ("3.0", "==2.13.0"),
        ("4.0", "==2.15.0"),
    ):
        make_wheel(simple, "painter", version, requires=[f"torch{torch}"])
    plan = live(workshop, "painter", *RTX_4090)
    assert plan["build"]["torch"] == "2.13.0"
    assert said(plan, "program-held-back") == [
        "painter is 3.0 instead of 4.0, which requires torch==2.15.0"
    ]


@pytest.mark.heavy
def test_of_two_programs_that_disagree_the_first_is_the_newest(workshop, simple):
    for name, torch in (("painter", "2.13.0"), ("singer", "2.10.0")):
        make_wheel(simple, name, "1.0", requires=["torch"])
        make_wheel(simple, name, "2.0", requires=[f"torch=={torch}"])
    plan = live(workshop, "singer", "painter", *RTX_4090)
    assert plan["build"]["torch"] == "2.10.0"
    assert said(plan, "program-held-back") == [
        "painter is 1.0 instead of 2.0, which requires torch==2.13.0"
    ]
    first = locked(workshop, "painter", "singer", *RTX_4090)
    assert [first[name] for name in ("painter", "singer", "torch")] == [
        "2.0",
        "1.0",
        "2.13.0+cu126",
    ]
    for words in (
        ("singer", "painter"),
        ("singer",),
        ("singer", "painter", "--only"),
    ):  # the folder's order stays
        assert locked(workshop, *words, *RTX_4090) == first, words
    assert live(workshop, "singer", "painter", *RTX_4090)["build"]["torch"] == "2.13.0"


@pytest.mark.heavy
def test_a_program_is_the_newest_though_it_requires_a_prerelease_of_flash_attn_4(workshop, simple):
    make_wheel(simple, "flash-attn-4", "4.0.0b36")
    make_wheel(simple, "serving", "1.0", requires=["torch"])
    make_wheel(simple, "serving", "2.0", requires=["torch", "flash-attn-4>=4.0.0b9"])
    found = locked(workshop, "serving", "--gpu", "H100", "--driver", "580.95.05")
    assert (found["serving"], found["flash-attn-4"]) == ("2.0", "4.0.0b36")


@pytest.mark.heavy
def test_what_cannot_be_had_together_is_refused_and_both_are_named(workshop, simple):
    make_wheel(simple, "painter", "1.0", requires=["torch==2.13.0"])
    make_wheel(simple, "singer", "1.0", requires=["torch==2.10.0"])
    error = workshop.document("plan", "--live", "painter", "singer", *RTX_4090, exit_code=3)[
        "errors"
    ][0]
    assert error["code"] == "requirements-conflict"
    told = workshop.run("plan", "--live", "painter", "singer", *RTX_4090).err
    assert "painter" in told
    assert "singer" in told


@pytest.mark.heavy
def test_an_old_release_as_source_is_not_taken_where_a_newer_one_has_a_wheel(workshop, simple):
    make_sdist(simple, "painter", "0.1", requires=["torch"])
    make_wheel(simple, "painter", "2.0", requires=["torch==2.13.0"])
    make_sdist(simple, "painter", "2.0", requires=["torch==2.13.0"])
    make_wheel(simple, "painter", "3.0", requires=["torch==2.15.0"])
    found = locked(workshop, "painter", *RTX_4090)
    assert (found["painter"], found["torch"]) == ("2.0", "2.13.0+cu126")
    refused = workshop.document(
        "plan", "--live", "painter", "torch==2.10.0", *RTX_4090, exit_code=3
    )
    assert refused["errors"][0]["code"] == "requirements-conflict"


@pytest.mark.heavy
def test_the_best_backend_of_the_torch_that_comes_out_is_the_one_that_has_its_family(
    workshop, simple
):
    make_wheel(simple, "singer", "1.0", requires=["torch==2.13.0", "torchaudio==2.11.0"])
    found = locked(workshop, "singer", *H100)
    assert (found["torch"], found["torchaudio"]) == ("2.13.0+cu130", "2.11.0+cu130")
    plan = live(workshop, "singer", *H100)
    over = next(
        found
        for found in plan["rejected"]
        if (found["torch"], found["backend"]) == ("2.13.0", "cu132")
    )
    assert over["code"] == "programs-conflict"
    assert "torchaudio" in over["message"]


@pytest.mark.parametrize(
    "older",
    mostly_heavy([(), ("1.0",)], [("1.0",)]),
    ids=["alone", "beside an older one that every build serves"],
)
def test_a_program_that_only_an_older_cuda_serves_is_the_same_with_a_newer_driver(
    workshop, simple, older
):
    make_wheel(simple.parent / "whl" / "cu126", "xformers", "0.0.35", requires=["torch"])
    for version in older:
        make_wheel(simple, "singer", version, requires=["torch"])
    make_wheel(simple, "singer", "2.0", requires=["torch", "xformers==0.0.35"])
    for machine in (RTX_4090, H100):
        found = locked(workshop, "singer", *machine)
        assert (found["singer"], found["torch"]) == ("2.0", "2.14.1+cu126"), machine


def test_the_torch_that_a_pinned_program_requires_is_taken(stand_in, simple, monkeypatch, tmp_path):
    make_wheel(simple, "painter", "1.0.0", requires=["torch==2.13.0"])
    make_wheel(simple, "painter", "2.0.0", requires=["torch"])
    for name, value in {**stand_in.environment(), "UV_CACHE_DIR": str(tmp_path / "uv")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    request = Request(("painter==1.0",), python="3.12")
    target = LockRequest.for_target(Target.parse("cu126"), request, frozen_catalog())
    sources = read_sources(stand_in.torch_index, stand_in.environment(), tmp_path)
    with open_session(sources, SilentReporter()) as session:
        (found,) = resolve_locks([target], session)
    assert found.versions["torch"] == "2.13.0+cu126"
    reasons = [reason.message for reason in found.plan.reasons]
    assert "painter 1.0.0 requires torch 2.13.0; without it torch 2.14.1 would run here" in reasons


@pytest.mark.heavy
def test_a_torch_that_was_pinned_stays(workshop, simple):
    make_wheel(simple, "painter", "1.0", requires=["torch"])
    make_wheel(simple, "painter", "2.0", requires=["torch==2.13.0"])
    found = locked(workshop, "torch==2.10.0", "painter", *RTX_4090)
    assert (found["painter"], found["torch"].partition("+")[0]) == ("1.0", "2.10.0")


@pytest.mark.heavy
def test_all_targets_get_one_version_of_the_program_and_of_torch(workshop, simple):
    make_wheel(simple, "painter", "1.0", requires=["torch"])
    make_wheel(simple, "painter", "2.0", requires=["torch==2.13.0"])
    words = [
        word for target in ("cu126", "cu130", "cpu-macos-arm64") for word in ("--target", target)
    ]
    made = workshop.document("lock", "painter", *words)["data"]
    assert made["differences"] == []
    assert {lock["torch"].partition("+")[0] for lock in made["locks"]} == {"2.13.0"}
    names = [lock["path"].rpartition("/")[2] for lock in made["locks"]]
    assert {parse("x", workshop.lock(name)).versions["painter"] for name in names} == {"2.0"}


@pytest.mark.heavy
def test_a_project_that_needs_a_program_is_one_version_set_on_every_machine_that_syncs(
    workshop, simple, play
):
    make_wheel(simple, "painter", "1.0", requires=["torch"])
    make_wheel(simple, "painter", "2.0", requires=["torch==2.13.0"])
    project = '[project]\nname = "mine"\nversion = "0"\ndependencies = ["painter>=1.0"]\n'
    (workshop.folder / "pyproject.toml").write_text(project, encoding="utf-8")
    made = workshop.document("lock", "--target", "cu126", "--target", "cu130", "--python", "3.12")[
        "data"
    ]
    assert (len(made["locks"]), made["differences"]) == (2, [])
    for cuda, driver, target in ((12020, "535.183.01", "cu126"), (13000, "580.95.05", "cu130")):
        play(FakeDriver((FakeGpu(),), driver=driver, cuda=cuda))
        done = workshop.document("sync", "--venv", target)["data"]
        assert (done["chosen"], done["verdict"]["status"]) == (f"pylock.{target}.toml", "passed")
        python = workshop.folder / target / "bin" / "python"
        code = "import torch; from importlib.metadata import version; print(version('painter'), torch.__version__)"
        assert process.run([python, "-c", code]).out.strip() == f"2.0 2.13.0+{target}"


@pytest.mark.heavy
def test_several_machines_get_the_targets_of_the_torch_that_the_program_wants(workshop, simple):
    make_wheel(simple, "painter", "1.0", requires=["torch"])
    make_wheel(simple, "painter", "2.0", requires=["torch==2.10.0"])
    written = [recorded(workshop, "H100", "610.43.02"), recorded(workshop, "RTX 4090", "610.43.02")]
    assert list(locked_for(workshop, "torch", *written)) == ["cu132"]
    found = locked_for(workshop, "painter", *written)
    assert {target: (held["painter"], held["torch"]) for target, held in found.items()} == {
        "cu130": ("2.0", "2.10.0+cu130")
    }


@pytest.mark.heavy
def test_a_target_for_several_machines_holds_what_all_of_them_run(workshop, simple):
    make_wheel(simple, "painter", "1.0", requires=["torch"])
    machines = [
        recorded(workshop, "Tesla K80", "470.256.02"),
        recorded(workshop, "RTX 3090", "470.256.02"),
    ]
    for program in ("torch", "painter"):
        (held,) = locked_for(workshop, program, *machines).values()
        assert held["torch"] == "2.3.1+cu118"


@pytest.mark.heavy
def test_a_locks_torch_stays_where_only_the_program_moves(workshop, simple):
    make_wheel(simple, "painter", "1.0", requires=["torch==2.10.0"])
    locked(workshop, "painter", "--target", "cu126")
    make_wheel(simple, "painter", "1.5", requires=["torch==2.10.0"])
    make_wheel(simple, "painter", "2.0", requires=["torch==2.13.0"])
    later = Workshop(workshop.folder, workshop.folder.parent / "later", workshop.variables)
    later.document(
        "lock", "painter", "--target", "cu126", "--python", "3.12", "--upgrade-package", "painter"
    )
    found = parse("x", later.lock("pylock.cu126.toml")).versions
    assert (found["painter"], found["torch"]) == ("1.5", "2.10.0+cu126")


def test_a_live_plan_is_what_a_lock_carries_out_and_changes_nothing(workshop, simple):
    make_wheel(simple, "painter", "2.0", requires=["torch==2.13.0"])
    before = workshop.entries()
    plan = live(workshop, "painter", "torchvision", *RTX_4090)
    assert workshop.entries() == before
    assert plan["build"]["requirements"] == [
        "torch==2.13.0+cu126",
        "torchvision==0.28.0+cu126",
        "painter",
    ]
    found = locked(workshop, "painter", "torchvision", *RTX_4090)
    assert f"torch=={found['torch']}" in plan["build"]["requirements"]


@pytest.mark.heavy
def test_a_dry_run_shows_the_choice_that_the_installation_makes(workshop, stand_in, simple, play):
    play(FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020))
    make_wheel(simple, "painter", "1.0", requires=["torch"])
    make_wheel(simple, "painter", "2.0", requires=["torch==2.13.0"])
    words = ("install", "painter", "--python", "3.12")
    shown = workshop.document(*words, "--dry-run")["data"]["plan"]
    assert workshop.entries() == set()
    # Its METADATA, at the end of the wheel: this index does not tell it apart.
    assert set(stand_in.sent()) <= {"painter-2.0-py3-none-any.whl"}
    assert shown.items() <= live(workshop, "painter").items()
    assert shown == workshop.document(*words)["data"]["plan"]
    assert shown["build"]["torch"] == "2.13.0"


def test_without_live_a_plan_says_that_it_has_not_looked(workshop):
    plan = workshop.document("plan", "painter", "singer", *RTX_4090)["data"]
    (warning,) = plan["warnings"]
    assert warning["code"] == "programs-not-looked-at"
    assert warning["message"].startswith("the request was not resolved: plan --live resolves it")


def test_a_program_whose_torch_this_driver_cannot_run_is_refused_with_the_driver(workshop, simple):
    make_wheel(simple, "painter", "1.0", requires=["torch==2.15.0"])
    done = workshop.run("plan", "--live", "painter", *RTX_4090)
    assert done.status == 3
    assert "torch==2.15.0 and driver 535.183.01 are incompatible" in done.err
    assert "painter" in done.err
