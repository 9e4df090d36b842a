"""The request of a folder: what is asked for stays asked for, whatever comes, goes or moves beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli

from gpuinstall.machine.pythons import find_python
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.fixtures import Play
from tests.lab.index import StandInIndex
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

LOCK = "pylock.cu126.toml"


@pytest.fixture
def simple(stand_in_folder: Path) -> Path:
    folder = stand_in_folder / "simple"
    make_wheel(folder, "transformers", "4.57.0", requires=["tokenizers", "numpy"])
    make_wheel(folder, "tokenizers", "0.22.1")
    make_wheel(folder, "rich", "14.2.0", requires=["markdown"])
    make_wheel(folder, "markdown", "3.9")
    return folder


@pytest.fixture
def workshop(stand_in: StandInIndex, simple: Path, tmp_path: Path, play: Play) -> Workshop:
    assert simple.is_dir()
    play(FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020))
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


def release(workshop: Workshop, folder: Path, *wheels: tuple[str, str]) -> Workshop:
    """Let new versions appear; the same folder, with caches that know nothing of before."""
    for name, version in wheels:
        requires = {"transformers": ["tokenizers", "numpy"], "rich": ["markdown"]}.get(name, [])
        make_wheel(folder, name, version, requires=requires)
    return Workshop(workshop.folder, workshop.caches.with_name("later"), workshop.variables)


def versions(workshop: Workshop, name: str = LOCK) -> dict[str, str]:
    return {
        package["name"]: package["version"]
        for package in tomli.loads(workshop.lock(name))["packages"]
    }


def inputs(workshop: Workshop, name: str = LOCK) -> list[str]:
    found: list[str] = tomli.loads(workshop.lock(name))["tool"]["gpuinstall"]["inputs"]
    return found


def changes(data: dict[str, Any]) -> set[tuple[str, str]]:
    return {(change["kind"], change["package"]) for change in data["lock"]["changes"]}


def test_an_upgrade_changes_versions_and_loses_nothing(workshop, simple):
    workshop.document("install", "torch", "numpy", "transformers<5")
    before = versions(workshop)
    later = release(workshop, simple, ("transformers", "4.58.0"), ("transformers", "5.0.0"))
    rehearsed = later.run("install", "--upgrade", "--dry-run")
    assert "~ transformers 4.57.0 -> 4.58.0" in rehearsed.err + rehearsed.out
    assert versions(workshop) == before
    done = later.run("install", "--upgrade")
    assert done.status == 0, done.err
    assert "~ transformers 4.57.0 -> 4.58.0" in done.err
    assert versions(workshop) == before | {"transformers": "4.58.0"}
    assert inputs(workshop) == ["torch", "numpy", "transformers<5"]


@pytest.mark.heavy
def test_one_package_is_upgraded_and_the_others_stay(workshop, simple):
    workshop.document("install", "torch", "numpy", "transformers<5")
    before = versions(workshop)
    later = release(workshop, simple, ("transformers", "4.58.0"), ("numpy", "2.4.0"))
    data = later.document("install", "--upgrade-package", "numpy")["data"]
    assert changes(data) == {("changed", "numpy")}
    assert versions(workshop) == before | {"numpy": "2.4.0"}
    assert workshop.python("import transformers, numpy, torch; print('all')") == "all"


@pytest.mark.heavy
def test_what_is_installed_is_added_and_nothing_else_moves(workshop, simple):
    workshop.document("install", "torch", "numpy", "transformers<5")
    before = versions(workshop)
    later = release(workshop, simple, ("transformers", "4.58.0"), ("numpy", "2.4.0"))
    done = later.run("install", "rich")
    assert done.status == 0, done.err
    assert "+ rich 14.2.0" in done.err
    assert versions(workshop) == before | {"rich": "14.2.0", "markdown": "3.9"}
    assert inputs(workshop) == ["torch", "numpy", "transformers<5", "rich"]
    assert later.document("install")["data"]["environment"]["status"] == "none"


@pytest.mark.heavy
def test_a_requirement_of_the_same_name_takes_the_place_of_the_old_one(workshop):
    workshop.document("install", "torch==2.13.0", "numpy")
    data = workshop.document("install", "torch==2.14.1")["data"]
    assert inputs(workshop) == ["torch==2.14.1", "numpy"]
    assert ("changed", "torch") in changes(data)


@pytest.mark.heavy
def test_a_torch_that_is_locked_stays_beside_what_is_added(workshop):
    workshop.document("lock", "torch==2.13.0", "--target", "cu126")
    workshop.document("lock", "torch")
    assert inputs(workshop) == ["torch"]
    workshop.document("lock", "rich")
    assert versions(workshop)["torch"] == "2.13.0+cu126"
    workshop.document("lock", "torchvision")
    assert versions(workshop)["torch"] == "2.13.0+cu126"


@pytest.mark.heavy
def test_only_makes_it_the_whole_request_and_says_what_goes(workshop):
    workshop.document("install", "torch", "numpy", "rich")
    done = workshop.run("install", "--only", "torch")
    assert done.status == 0, done.err
    assert all(
        line in done.err for line in ("- numpy 2.3.4\n", "- rich 14.2.0\n", "- markdown 3.9\n")
    )
    assert inputs(workshop) == ["torch"]


def test_a_package_is_removed_with_what_only_it_needed(workshop):
    workshop.document("install", "torch", "transformers<5", "rich")
    before = versions(workshop)
    rehearsed = workshop.document("remove", "rich", "--dry-run")["data"]
    assert changes(rehearsed) == {("removed", "rich"), ("removed", "markdown")}
    data = workshop.document("remove", "rich")["data"]
    assert changes(data) == {("removed", "rich"), ("removed", "markdown")}
    assert versions(workshop) == {
        name: before[name] for name in before if name not in {"rich", "markdown"}
    }
    assert inputs(workshop) == ["torch", "transformers<5"]


@pytest.mark.parametrize(
    ("name", "code"),
    [("tokenizers", "not-requested"), ("cowsay", "not-requested"), ("torch", "torch-stays")],
)
def test_what_was_not_asked_for_cannot_be_removed(workshop, name, code):
    workshop.document("lock", "torch", "transformers", "--target", "cu126")
    before = workshop.lock(LOCK)
    assert workshop.document("remove", name, exit_code=2)["errors"][0]["code"] == code
    assert workshop.lock(LOCK) == before


@pytest.mark.heavy
def test_what_a_project_asks_for_is_taken_out_of_the_project_and_what_was_added_by_hand_stays(
    workshop,
):
    settings = workshop.folder / "pyproject.toml"
    settings.write_text('[tool.gpuinstall]\nrequirements = ["torch", "numpy"]\n', encoding="utf-8")
    workshop.document("install")
    workshop.document("install", "rich")
    assert inputs(workshop) == ["torch", "numpy", "rich"]
    error = workshop.document("remove", "numpy", exit_code=2)["errors"][0]
    assert (error["code"], "pyproject.toml" in error["message"]) == ("requested-elsewhere", True)
    settings.write_text('[tool.gpuinstall]\nrequirements = ["torch"]\n', encoding="utf-8")
    data = workshop.document("install")["data"]
    assert changes(data) == {("removed", "numpy")}
    assert inputs(workshop) == ["torch", "rich"]


@pytest.mark.heavy
def test_a_file_replaces_what_it_asked_for_before(workshop):
    file = workshop.folder / "wanted.txt"
    file.write_text("torch\nnumpy\ntransformers\n", encoding="utf-8")
    workshop.document("install", "-r", "wanted.txt", "rich")
    file.write_text("torch\ntransformers\n", encoding="utf-8")
    assert "wanted.txt has changed" in workshop.run("install").err
    workshop.document("install", "-r", "wanted.txt")
    assert inputs(workshop) == ["rich", "torch", "transformers"]


@pytest.mark.heavy
def test_the_build_that_was_asked_for_stays_too(workshop):
    workshop.document("install", "--backend", "cpu", "numpy")
    assert workshop.document("install", "rich")["data"]["environment"]["backend"] == "cpu"
    assert workshop.document("install", "--upgrade")["data"]["environment"]["backend"] == "cpu"
    assert workshop.document("install")["data"]["environment"]["status"] == "none"


def test_another_python_takes_the_same_request(workshop):
    if not find_python("3.12"):
        pytest.skip("no Python 3.12 here")
    workshop.document("install", "torch==2.14.1", "numpy", "--python", "3.11")
    before = versions(workshop)

    made = workshop.document("install", "--python", "3.12")["data"]

    assert made["environment"]["python"] == "3.12"
    assert versions(workshop) == before
    assert workshop.python("import numpy, sys; print(sys.version_info[:2])") == "(3, 12)"


@pytest.mark.heavy
def test_packages_put_in_by_hand_are_named_with_the_command_that_keeps_the_rest(
    workshop,
):
    workshop.document("install", "torch", "numpy")
    packages = next((workshop.folder / ".venv" / "lib").glob("python*/site-packages"))
    (packages / "cowsay-6.1.dist-info").mkdir()
    error = workshop.document("install", exit_code=2)["errors"][0]
    assert "gpuinstall install --replace cowsay" in error["hint"]
    workshop.document("install", "--replace", "cowsay")
    assert inputs(workshop) == ["torch", "numpy", "cowsay"]


@pytest.mark.parametrize("words", [("--upgrade",), ("--upgrade-package", "numpy"), ()])
def test_a_lock_made_anew_holds_what_it_was_made_for(workshop, simple, words):
    workshop.document("lock", "torch", "numpy", "transformers<5", "--target", "cu126")
    before = versions(workshop)
    later = release(workshop, simple, ("numpy", "2.4.0"))
    done = later.run("lock", *words)
    assert done.status == 0, done.err
    assert ("~ numpy 2.3.4 -> 2.4.0" in done.err) is bool(words)
    assert versions(workshop) == before | ({"numpy": "2.4.0"} if words else {})
    assert inputs(workshop) == ["torch", "numpy", "transformers<5"]


def test_a_damaged_lock_is_made_again_for_what_it_still_says(workshop):
    workshop.document("lock", "torch", "numpy", "--target", "cu126")
    lock = workshop.folder / LOCK
    lock.write_text(lock.read_text(encoding="utf-8") + "<<<<<<< mine\n", encoding="utf-8")
    workshop.document("lock", "--upgrade")
    assert inputs(workshop) == ["torch", "numpy"]


def test_locks_of_a_folder_are_made_together(workshop, simple):
    targets = ("--target", "cu126", "--target", "cpu", "--target", "cpu-windows-x86_64")
    workshop.document("lock", "torch", "numpy", *targets)
    later = release(workshop, simple, ("numpy", "2.4.0"))
    made = later.document("lock", "--upgrade")["data"]["locks"]
    assert {lock["target"] for lock in made} == {"cu126", "cpu", "cpu-windows-x86_64"}
    assert {
        versions(workshop, path.name)["numpy"] for path in workshop.folder.glob("pylock.*")
    } == {"2.4.0"}


@pytest.mark.heavy
def test_a_lock_that_joins_the_set_takes_its_versions(workshop, simple):
    workshop.document("lock", "torch==2.14.1", "numpy", "--target", "cu126")
    before = workshop.lock(LOCK)
    later = release(workshop, simple, ("numpy", "2.4.0"))
    later.document("lock", "--target", "cu126", "--target", "cpu")
    assert workshop.lock(LOCK) == before
    assert versions(workshop, "pylock.cpu.toml")["numpy"] == "2.3.4"
    assert inputs(workshop, "pylock.cpu.toml") == ["torch==2.14.1", "numpy"]


def test_locks_that_disagree_are_stale_and_made_again_for_the_newest_request(
    workshop,
):
    workshop.document("lock", "torch", "numpy", "--target", "cu126", "--target", "cpu")
    done = workshop.run("install", "rich")
    behind = "warning: pylock.cpu.toml: made for another request or other versions; update them with: gpuinstall lock"
    assert behind in done.err.splitlines()
    checked = workshop.document("lock", "check", exit_code=6)
    stale = {lock["target"]: lock for lock in checked["data"]["locks"]}
    assert (stale["cu126"]["status"], stale["cpu"]["status"]) == ("fresh", "stale")
    assert stale["cpu"]["reasons"][0]["code"] == "inputs-changed"
    assert [error["hint"] for error in checked["errors"]] == ["gpuinstall lock"]
    assert workshop.run("lock", "check").out.splitlines()[-1] == "  do    gpuinstall lock"
    assert "first: gpuinstall lock" in workshop.run("doctor").out.splitlines()
    other = "pylock.cpu.toml was made for torch numpy, but the request is now torch numpy rich; gpuinstall lock updates it"
    assert (
        f"warning: {other}"
        in workshop.run("sync", "--target", "cpu", "--venv", "other").err.splitlines()
    )
    assert "warning" not in workshop.run("sync").err
    workshop.document("lock")
    assert inputs(workshop, "pylock.cpu.toml") == ["torch", "numpy", "rich"]
    assert workshop.document("lock", "check")["status"] == "success"
    assert behind in workshop.run("remove", "rich").err
    workshop.document("lock")
    assert inputs(workshop, "pylock.cpu.toml") == ["torch", "numpy"]
    assert behind not in workshop.run("install").err


@pytest.mark.heavy
def test_versions_that_differ_between_locks_are_found(workshop, simple):
    workshop.document("lock", "torch==2.14.1", "numpy", "--target", "cu126", "--target", "cpu")
    later = release(workshop, simple, ("numpy", "2.4.0"))
    later.document("lock", "--upgrade", "--target", "cpu")
    found = later.document("lock", "check", "--offline", exit_code=6)["data"]["locks"]
    reasons = {reason["code"]: reason["message"] for lock in found for reason in lock["reasons"]}
    assert reasons.keys() == {"versions-differ"}
    assert "numpy" in reasons["versions-differ"]
    assert "disagree" in later.run("doctor").out
    assert later.run("lock", "check", "--offline").out.splitlines()[-1] == "  do    gpuinstall lock"
    later.document("lock")
    assert later.document("lock", "check", "--offline")["status"] == "success"


def test_a_lock_that_no_target_names_any_more_is_said_and_removed_when_told(
    workshop,
):
    workshop.document("lock", "torch", "--target", "cu126", "--target", "cpu")
    (workshop.folder / "pylock.theirs.toml").write_text(
        'lock-version = "1.0"\ncreated-by = "uv"\npackages = []\n'
    )
    settings = workshop.folder / "pyproject.toml"
    settings.write_text('[tool.gpuinstall]\ntargets = ["cpu"]\n', encoding="utf-8")
    told = workshop.run("lock")
    assert "pylock.cu126.toml is for none of the targets" in told.err
    assert "gpuinstall lock --prune" in told.err
    stale = workshop.document("lock", "check", "--offline", exit_code=6)["data"]["locks"]
    assert [reason["code"] for lock in stale for reason in lock["reasons"]] == ["no-target"]
    data = workshop.document("lock", "--prune")["data"]
    assert data["removed"] == [str(workshop.folder / "pylock.cu126.toml")]
    assert workshop.entries() == {"pylock.cpu.toml", "pylock.theirs.toml", "pyproject.toml"}
    assert workshop.document("lock", "check", "--offline")["status"] == "success"


def test_an_index_that_does_not_answer_is_the_fault_and_not_the_targets(workshop, stand_in):
    stand_in.torch.close()
    error = workshop.document("lock", "--target", "cu126", "--target", "cu130", exit_code=4)[
        "errors"
    ][0]
    assert error["code"] == "unreachable"
    assert "target" not in error["message"]
