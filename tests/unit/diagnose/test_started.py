"""What is known only once the Python of an environment runs, and which one is started."""

import pytest

from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.diagnose.examination import examine, requirements_unmet
from gpuinstall.sources import OFFICIAL
from tests.lab.environments import put_package, small_torch
from tests.unit.diagnose.evidence import doctor_evidence, installed_in

LINUX = Machine("linux", "x86_64", "glibc", "2.36")


@pytest.fixture
def site(tmp_path):
    return small_torch(tmp_path / ".venv")


def unmet(venv, python="3.12.1"):
    packages = installed_in(venv)
    evidence = doctor_evidence(venv=venv, packages=packages)
    return list(requirements_unmet(evidence, python))


def test_what_torch_requires_and_is_not_there_is_named_with_its_repair(site, tmp_path):
    put_package(
        site, "torch", {}, version="2.14.1", requires=["filelock", "triton==3.5.0"]
    )
    put_package(site, "triton", {}, version="3.4.0")

    found = {
        finding.message: str(finding.fixes[0]) for finding in unmet(tmp_path / ".venv")
    }

    install = f"uv pip install --python {tmp_path}/.venv/bin/python"
    assert found == {
        "torch 2.14.1 requires filelock, and it is not installed": f"{install} filelock",
        "torch 2.14.1 requires triton==3.5.0, and 3.4.0 is installed": f"{install} triton==3.5.0",
    }


def test_what_is_required_of_another_python_or_system_is_not_missed(site, tmp_path):
    demands = [
        'tomli; python_version < "3.11"',
        'pywin32; sys_platform == "win32"',
        'xlrd; extra == "excel"',
        'importlib-metadata; python_version < "3.12"',
    ]
    put_package(site, "app", {}, requires=demands)
    venv = tmp_path / ".venv"
    messages = [finding.message for finding in unmet(venv, "3.11.7")]
    assert messages == ["app 1.0 requires importlib-metadata, and it is not installed"]


def test_a_companion_has_its_entry_and_what_others_require_is_a_note(site, tmp_path):
    put_package(site, "torch", {}, version="2.14.1")
    put_package(site, "torchaudio", {}, version="2.10.0", requires=["torch==2.10.0"])
    put_package(site, "app", {}, requires=["torch<2.14", "absent"])
    venv = tmp_path / ".venv"

    found = {finding.message: finding for finding in unmet(venv)}

    companion = found[
        "torchaudio 2.10.0 requires torch==2.10.0, and 2.14.1 is installed"
    ]
    assert (companion.code, companion.id, companion.blocking) == (
        "torchaudio-mismatch",
        "F48",
        True,
    )
    again = f"gpuinstall install --into --venv {venv} torch torchaudio"
    assert (companion.fix or "").startswith(again)
    assert not found["app 1.0 requires absent, and it is not installed"].blocking
    assert not found["app 1.0 requires torch<2.14, and 2.14.1 is installed"].blocking


@pytest.mark.parametrize("named", [False, True])
def test_only_an_environment_that_is_ours_or_was_named_is_started(
    site, tmp_path, monkeypatch, named
):
    monkeypatch.chdir(tmp_path)
    started = tmp_path / "started"
    (site / "sitecustomize.py").write_text(f"open({str(started)!r}, 'w').close()\n")

    examination = examine(
        tmp_path,
        tmp_path / ".venv",
        LINUX,
        request=None,
        torch_index=OFFICIAL,
        reporter=Reporter(),
        named=named,
    )

    assert started.exists() is named
    said = [
        finding.message
        for finding in examination.findings
        if finding.code == "not-started"
    ]
    assert bool(said) is not named
    assert examination.evidence.is_there
    assert examination.was_started is named
