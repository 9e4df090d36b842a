"""A change pays for what it changes: the proof of what stays is kept, and what was proven never changes unnoticed."""

import json
import re

import pytest

from tests.integration.test_install_lab import leftovers
from tests.lab.driver import RTX_4090
from tests.lab.projects import make_project
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

KEPT = "Proof       kept: nothing that it covers changed"


@pytest.fixture
def workshop(stand_in, stand_in_folder, tmp_path, play):
    """A folder whose environment was proven on an RTX 4090."""
    make_wheel(stand_in_folder / "simple", "ipykernel", "7.1.0")
    play(RTX_4090)
    folder = tmp_path / "project"
    folder.mkdir()
    workshop = Workshop(folder, tmp_path / "caches", stand_in.environment())
    workshop.document("install", "torch==2.13.0", "numpy")
    return workshop


def fail(monkeypatch, folder, kernel, message):
    """Let a kernel of torch fail from now on."""
    verdict = {"*": {"failed": {kernel: message}}}
    (folder / "verdict.json").write_text(json.dumps(verdict), "utf-8")
    monkeypatch.setenv("LAB_VERDICT", str(folder / "verdict.json"))


@pytest.mark.heavy
def test_a_package_comes_and_goes_beside_the_proven_torch(workshop, tmp_path, monkeypatch):
    site = next((workshop.folder / ".venv").glob("lib/python3*/site-packages"))
    inode = (site / "torch" / "__init__.py").stat().st_ino
    (workshop.folder / ".venv" / "notes.txt").write_text("mine")
    fail(monkeypatch, tmp_path, "matmul-float32", "it went wrong")

    rehearsed = workshop.run("install", "cowsay", "--dry-run").out
    assert re.search(r"Download +\d+ kB, \d+ kB in .*/uv ", rehearsed), (
        "torch is linked, and takes no space"
    )
    added = workshop.run("install", "cowsay", "ipykernel")
    assert (added.status, KEPT in added.out) == (0, True), added.err
    assert "Preflight" not in added.err
    assert workshop.python("import cowsay, torch; print(torch.__version__)") == "2.13.0+cu126"
    assert (site / "torch" / "__init__.py").stat().st_ino == inode, "a link, not another file"
    for folder in (".venv", ".venv.gpuinstall/previous"):
        assert (workshop.folder / folder / "notes.txt").read_text() == "mine"
    nothing = workshop.run("install", "--upgrade-package", "cowsay")
    assert "already up to date" in nothing.out, nothing.err
    module = site / "ipykernel" / "__init__.py"
    module.unlink()
    module.write_text("edited = True")
    removed = workshop.run("remove", "cowsay")
    assert (removed.status, KEPT in removed.out) == (0, True), removed.err
    assert not (site / "cowsay").exists()
    assert module.read_text() == "edited = True", "what the user edits stays"
    again = workshop.run("install", "cowsay")
    assert (again.status, KEPT in again.out) == (0, True), again.err
    assert workshop.python("import cowsay, torch; print(torch.__version__)") == "2.13.0+cu126"
    back = workshop.run("env", "rollback")
    assert back.status == 0, back.err
    assert "already up to date" in workshop.run("install").out
    assert leftovers(workshop) == set()


@pytest.mark.heavy
def test_a_new_program_is_tested_by_itself(workshop, tmp_path, monkeypatch):
    fail(monkeypatch, tmp_path, "torchvision-nms", "operator torchvision::nms does not exist")
    monkeypatch.setenv("GPUINSTALL_FALLBACK", "0")
    failed = workshop.document("install", "torchvision", exit_code=5)
    assert "torchvision-nms" in failed["errors"][0]["message"]

    fail(monkeypatch, tmp_path, "matmul-float32", "it went wrong")
    checks = workshop.document("install", "torchvision")["data"]["verdict"]["devices"][0]["checks"]

    names = [check["name"] for check in checks]
    assert names.count("torchvision-nms") == 1
    assert "matmul-float32" in names


def test_an_editable_project_keeps_the_proof_until_its_build_files_change(
    workshop, tmp_path, monkeypatch
):
    project = make_project(workshop.folder / "mine", "mine", requires=["numpy"])
    workshop.document("install", "-e", "./mine")
    fail(monkeypatch, tmp_path, "matmul-float32", "it went wrong")
    added = workshop.run("install", "cowsay")
    assert (added.status, KEPT in added.out, "Building" in added.err) == (0, True, False), added.err
    assert workshop.python("import mine; print(mine.__file__)") == str(project / "mine.py")
    (project / "pyproject.toml").touch()
    removed = workshop.run("remove", "cowsay")
    assert (removed.status, "Building" in removed.err) == (5, True), removed.err


def test_packages_that_share_files_are_as_pip_installs_them(workshop, stand_in_folder):
    names = ["cv-a", "cv-b", "cv-c"]
    for position, name in enumerate(names):
        modules = {
            "cv2/__init__.py": f"OF = {name!r}{' ' * position}",
            f"cv2/only_{position}.py": "",
        }
        modules |= {f"cv2/of_all_{number}.py": f"OF = {name!r}" for number in range(8)}
        make_wheel(stand_in_folder / "simple", name, "1.0", modules=modules)
    whose = "import cv2; print(cv2.OF)"

    shared = workshop.run("install", "--verbose", *reversed(names))
    assert shared.status == 0, shared.err
    assert "cv-a 1.0, cv-b 1.0 and cv-c 1.0 write " in shared.err
    assert workshop.python(whose) == "cv-c", "the last in the lock"
    assert shared.err.count("Fetched ") == 1, "nothing is downloaded twice"
    beside = workshop.run("install", "--verbose", "cowsay")
    assert (beside.status, "Fetched" in beside.err) == (0, True), beside.err
    assert workshop.python(whose) == "cv-c"
    without = workshop.run("remove", "cv-c")
    assert without.status == 0, without.err
    assert workshop.python(whose) == "cv-b"
