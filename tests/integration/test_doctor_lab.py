"""What ``gpuinstall doctor`` says of environments that gpuinstall made itself, and whether its advice helps."""

import json
import re
import shlex

import pytest

from gpuinstall.base import process
from gpuinstall.base.uv import uv
from gpuinstall.environments.environment import installed_packages
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

RTX_4090 = FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020)
NO_KERNEL = "CUDA error: no kernel image is available for execution"


@pytest.fixture
def workshop(stand_in, tmp_path, play):
    play(RTX_4090)
    folder = tmp_path / "project"
    folder.mkdir()
    return Workshop(folder, tmp_path / "caches", stand_in.environment())


def findings(workshop):
    return json.loads(workshop.run("doctor", "--json").out)["data"]["findings"]


def last_line(workshop):
    return workshop.run("doctor").out.splitlines()[-1]


def site(workshop):
    return next((workshop.folder / ".venv" / "lib").glob("python*/site-packages"))


@pytest.mark.heavy
def test_after_a_first_proof_that_failed_the_doctor_calls_no_environment_healthy(
    workshop, tmp_path, monkeypatch
):
    (tmp_path / "verdict.json").write_text(json.dumps({"*": {"failed": {"linear": NO_KERNEL}}}))
    monkeypatch.setenv("LAB_VERDICT", str(tmp_path / "verdict.json"))
    assert workshop.run("install").status == 5
    done = workshop.run("doctor")
    assert "no environment" in done.out.splitlines()[-1]
    assert "healthy" not in done.out


@pytest.mark.heavy
def test_packages_are_counted_as_uv_counts_them(workshop):
    installed = workshop.run("install", "--verbose")
    python = str(workshop.folder / ".venv" / "bin" / "python")
    listed = process.run([str(uv()), "pip", "list", "--format", "json", "--python", python])
    count = len(json.loads(listed.out))
    assert re.findall(r"^Installed +(\d+) packages", installed.err, re.MULTILINE) == [str(count)]
    assert f" {count} packages in .venv" in last_line(workshop)
    assert last_line(workshop).startswith("healthy: ")


@pytest.mark.heavy
def test_an_environment_that_was_moved_is_named_and_made_again_by_the_advice(
    workshop,
):
    workshop.document("install")
    moved = workshop.folder.with_name("elsewhere")
    workshop.folder.rename(moved)
    there = Workshop(moved, workshop.caches, workshop.variables)
    (finding,) = findings(there)
    assert finding["code"] == "environment-moved"
    assert str(workshop.folder) in finding["title"]
    pasted(there, finding)
    assert findings(there) == []


@pytest.mark.heavy
def test_what_the_project_asks_for_and_the_environment_lacks_is_named_and_installed_by_the_advice(
    workshop,
):
    workshop.document("install")
    (workshop.folder / "pyproject.toml").write_text(
        '[tool.gpuinstall]\nrequirements = ["torch", "torchvision"]\n'
    )
    (finding,) = [finding for finding in findings(workshop) if finding["code"] == "request-unmet"]
    assert "torchvision" in finding["title"]
    pasted(workshop, finding)
    assert findings(workshop) == []


def test_a_library_that_is_gone_is_named_and_brought_back_by_the_advice(workshop):
    workshop.document("install")
    library = site(workshop) / "torch" / "version.py"
    library.unlink()
    (finding,) = findings(workshop)
    assert finding["code"] == "files-lost"
    pasted(workshop, finding)
    assert library.is_file()
    assert findings(workshop) == []


@pytest.mark.heavy
def test_a_torchvision_of_another_build_is_named_and_the_users_packages_stay(
    workshop, stand_in_folder
):
    workshop.document("install", "torch", "torchvision")
    record = next(site(workshop).glob("torchvision-*.dist-info"))
    record.rename(record.with_name(record.name.replace("cu126", "cpu")))
    own = {f"own-{number}" for number in range(12)}
    for name in own:
        make_wheel(stand_in_folder / "simple", name, "1.0")
        (site(workshop) / f"{name.replace('-', '_')}-1.0.dist-info").mkdir()
    finding = next(
        finding for finding in findings(workshop) if finding["code"] == "changed-by-hand"
    )
    assert "torchvision is 0.29.2+cpu" in finding["title"]
    program, *arguments = shlex.split(finding["fix"], comments=True)
    assert program == "gpuinstall"
    done = workshop.run(*arguments)
    assert done.status == 0, done.err
    assert {name for name in own if f"- {name} 1.0" in done.err} == own, "each is named"
    assert findings(workshop) == []
    previous = workshop.folder / ".venv.gpuinstall" / "previous"
    assert installed_packages(previous).keys() >= own


def pasted(workshop, finding):
    """Run the first command of a finding as a shell would read it, where no uv is on PATH."""
    program, *arguments = shlex.split(finding["fix"].splitlines()[0], comments=True)
    assert program == "gpuinstall"
    done = workshop.run(*arguments, *(("--yes",) if "--fix" in arguments else ()))
    assert done.status == 0, done.err
