"""``gpuinstall doctor``: machine, environment and project together, with the lab's driver and the small torch."""

import json
import os

import pytest

from tests.lab.driver import FakeDriver, FakeGpu, uuid_of
from tests.lab.environments import small_torch
from tests.lab.forked import gpuinstall

NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"
HEALTHY = FakeDriver((FakeGpu(), FakeGpu()), driver="535.183.01", cuda=12020)


@pytest.fixture
def site(tmp_path):
    """The packages of an environment with the small torch."""
    folder = small_torch(tmp_path / ".venv")
    record = folder / "torch-2.14.1+cu126.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.14.1+cu126\n")
    (record / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    return folder


@pytest.fixture
def doctor(site, tmp_path, monkeypatch):  # noqa: ARG001  the environment
    monkeypatch.setenv("LAB_VERDICT", str(tmp_path / "verdict.json"))

    def start(*words, verdict=None, folder="."):
        (tmp_path / "verdict.json").write_text(json.dumps(verdict or {}))
        (tmp_path / folder).mkdir(exist_ok=True)
        if folder == "." and "--venv" not in words:
            words = ("--venv", ".venv", *words)
        return gpuinstall("doctor", *map(str, words), cwd=tmp_path / folder)

    return start


def findings(done):
    return json.loads(done.out)["data"]["findings"]


def test_a_sound_machine_and_environment_are_healthy(doctor, play):
    play(HEALTHY)
    done = doctor()
    assert done.status == 0, done.err
    assert done.out.splitlines()[-1] == "healthy: the driver and 2 GPUs, 1 package in .venv"
    assert "Preflight   a kernel ran on both GPUs" in done.out


def test_an_environment_of_others_is_read_and_started_only_if_it_is_named_or_active(
    site, play, tmp_path, monkeypatch
):
    play(HEALTHY)
    venv = site.parents[2]

    unnamed = gpuinstall("doctor", cwd=tmp_path)
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    active = gpuinstall("doctor", "--json", cwd=tmp_path)

    assert f"Environment {venv}: read, not started" in unnamed.out
    assert unnamed.out.splitlines()[-1] == f"first: gpuinstall doctor --venv {venv}"
    assert json.loads(active.out)["data"]["environment"]["verdict"] is not None


def test_a_kernel_that_fails_is_the_environments_fault(doctor, play):
    play(HEALTHY)
    done = doctor("--json", verdict={uuid_of(1): {"failed": {"linear": NO_IMAGE}}})
    assert done.status == 5
    (finding,) = findings(done)
    assert (finding["id"], finding["blocking"]) == ("F37", True)
    assert finding["fix"].startswith("gpuinstall install")


def test_a_machine_that_cannot_be_used_comes_first(doctor, play, site):
    play(FakeDriver((FakeGpu(),), cu_init=802))
    for version in ("2.8.0", "2.9.1"):
        (site / f"torch-{version}.dist-info").mkdir()
    done = doctor("--json")
    assert done.status == 8
    assert [finding["id"] for finding in findings(done)][:2] == ["F10", "F34"]


def test_the_last_line_is_the_first_thing_to_do(doctor, play, tmp_path, monkeypatch):
    play(HEALTHY)
    (tmp_path / "toolkit").mkdir()
    (tmp_path / "toolkit" / "libcudart.so.11.0").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{os.environ['LD_LIBRARY_PATH']}:{tmp_path / 'toolkit'}")
    done = doctor()
    assert done.status == 0
    assert done.out.splitlines()[-1] == "first: unset LD_LIBRARY_PATH"


def test_one_lost_gpu_of_two_is_partial_and_what_to_do_about_it_comes_last(doctor, play):
    play(FakeDriver((FakeGpu(), FakeGpu(nvml_error=15, hidden_from_cuda=True))))
    document = json.loads(doctor("--json", folder="empty").out)
    assert (document["status"], document["exit_code"], document["errors"]) == ("partial", 0, [])
    assert doctor(folder="empty").out.splitlines()[-1].startswith("first: sudo dmesg")


def test_a_uv_project_that_will_undo_the_build_is_found(doctor, play, tmp_path):
    play(HEALTHY)
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1"\ndependencies = ["torch"]\n'
    )
    done = doctor("--json")
    assert done.status == 0
    assert [finding["id"] for finding in findings(done)] == ["F44"]


def test_an_environment_whose_python_does_not_run_is_at_fault(doctor, play, tmp_path):
    play(HEALTHY)
    python = tmp_path / ".venv" / "bin" / "python"
    python.unlink()
    python.write_text("not a program")
    python.chmod(0o755)
    done = doctor("--json")
    assert done.status == 5
    assert [finding["code"] for finding in findings(done)] == ["python-unusable"]


def test_without_an_environment_only_the_machine_is_judged(doctor, play):
    play(HEALTHY)
    done = doctor(folder="empty")
    assert done.status == 0
    advice = "no environment here: gpuinstall install makes one"
    assert done.out.splitlines()[-1] == f"no problem found in the driver and 2 GPUs; {advice}"


def test_repairs_are_shown_made_and_looked_at_again(doctor, play, site):
    play(HEALTHY)
    (site / "~orch").mkdir()
    data = json.loads(doctor("--fix", "--yes", "--json").out)["data"]
    (repair,) = data["repairs"]
    assert (repair["status"], repair["message"]) == ("done", None)
    assert repair["command"].startswith("rm -r ")
    assert (data["findings"], (site / "~orch").exists()) == ([], False)


def test_where_nobody_can_be_asked_nothing_is_repaired(doctor, play, site):
    play(HEALTHY)
    (site / "~orch").mkdir()
    done = doctor("--fix")
    assert done.status == 2
    assert f"gpuinstall doctor --fix --yes --venv {site.parents[2]}" in done.err
    shown = [done.err.index(words) for words in ("Found  ", "Repair  ", "--fix asks first")]
    assert shown == sorted(shown), "what is wrong is shown before a repair is asked for"
    assert (site / "~orch").is_dir()


def test_quiet_prints_only_what_blocks(doctor, play, site):
    play(HEALTHY)
    (site / "~orch").mkdir()
    assert (doctor("-q").out, doctor().out.count("note: ")) == ("", 1)
    play(FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020, cu_init=802))
    assert doctor("-q").out.startswith("error: ")
