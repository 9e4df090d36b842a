"""Findings from an environment's files, without starting its interpreter."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gpuinstall.base.shell import quote_word
from gpuinstall.environments.environment import Marker
from gpuinstall.environments.records import record_environment
from tests.unit.diagnose.evidence import (
    Site,
    doctor_evidence,
    found,
    holding,
    installed_in,
)
from tests.unit.install.environments import PYTHON, SCRIPTS, use_state_folder


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path / ".venv")
    made.add(
        "torch",
        "2.14.1+cu126",
        "filelock",
        'triton==3.5 ; platform_system == "Linux"',
        'numpy ; extra == "more"',
    )
    made.add("filelock", "3.20")
    made.add("triton", "3.5.0")
    return made


def test_intact_environment_has_no_findings(site):
    assert site.findings() == []


def test_missing_file_is_reported_with_a_reinstall_command(site):
    (site.folder / "torch" / "__init__.py").unlink()
    (finding,) = site.findings()
    assert (finding.code, finding.blocking) == ("files-missing", True)
    assert (
        finding.message
        == "torch 2.14.1+cu126 is damaged: 1 of 1 files is missing: torch/__init__.py"
    )
    where = f"--python {quote_word(site.venv / PYTHON)} --index https://download.pytorch.org/whl/cu126 --no-deps"
    assert (
        str(finding.fixes[0])
        == f"uv pip install {where} --reinstall-package torch torch==2.14.1+cu126"
    )


def test_truncated_package_file_is_reported(site):
    (site.folder / "triton" / "__init__.py").write_bytes(b"x")
    assert [finding.message.split()[0] for finding in site.findings()] == ["triton"]


def test_damage_outside_torch_is_not_blocking(site):
    site.add("rich", "14.0", "pygments")
    (site.folder / "rich" / "__init__.py").unlink()
    (finding,) = site.findings()
    assert (finding.code, finding.blocking) == ("files-missing", False)
    assert [str(fix)[:40] for fix in finding.fixes] == [
        f"uv pip install --python {quote_word(site.venv / PYTHON)}"[:40]
    ]


def test_fix_for_truncated_package_cleans_cache_first(site):
    record = site.folder / "torch-2.14.1+cu126.dist-info" / "RECORD"
    record.write_text("")
    (site.folder / "triton" / "__init__.py").write_text("")
    (site.venv / "pyvenv.cfg").write_text("")
    (site.venv / PYTHON).parent.mkdir(exist_ok=True)
    (site.venv / PYTHON).touch()
    findings = {finding.message: finding for finding in site.findings()}
    assert list(findings) == [
        f"{site.venv / 'pyvenv.cfg'} is empty",
        "torch 2.14.1+cu126 is damaged: torch-2.14.1+cu126.dist-info/RECORD is empty",
        "triton 3.5.0 is damaged: 1 of 1 files is truncated: triton/__init__.py",
    ]
    configuration, torch, triton = findings.values()
    assert str(configuration.fixes[0]).startswith("uv venv --allow-existing --python ")
    assert str(torch.fixes[0]) == "uv cache clean torch"
    assert str(triton.fixes[0]) == "uv cache clean triton"


def test_edited_package_file_is_not_blocking(site):
    (site.folder / "triton" / "__init__.py").write_text("y = 2  # mine")
    (finding,) = site.findings()
    assert (finding.code, finding.blocking) == ("files-modified", False)
    assert (
        finding.message
        == "triton 3.5.0 was modified after its installation: triton/__init__.py"
    )
    assert str(finding.fixes[-1]).endswith("   # overwrites your edits")


def test_rebuild_omits_packages_without_an_index(site):
    (site.venv / SCRIPTS).mkdir(exist_ok=True)
    (site.venv / SCRIPTS / "activate").write_text("VIRTUAL_ENV=/elsewhere/.venv\n")
    site.add("pandas", "2.3.0", "numpy", 'xlrd ; extra == "excel"')
    site.add("numpy", "2.2.6")
    site.add("xlrd", "2.0.1")
    site.add("mine", "0.1")
    (site.folder / "mine-0.1.dist-info" / "direct_url.json").write_text("{}")
    (finding,) = site.findings()
    again = f"gpuinstall install --venv {quote_word(site.venv)} --replace pandas==2.3.0 xlrd==2.0.1"
    assert (finding.fix or "").splitlines() == [
        f"{again}   # without mine, which was not installed from an index"
    ]


def test_conda_environment_is_not_replaced(tmp_path):
    (tmp_path / "conda-meta").mkdir()
    packages = holding(("torch", "2.11.0+cu126"), ("torch", "2.9.1"))

    (finding,) = found(packages=packages, venv=tmp_path)

    assert str(finding.fix) == "gpuinstall install"


def test_managed_environment_is_repaired_from_its_lock(site, tmp_path, monkeypatch):
    use_state_folder(monkeypatch, tmp_path / "state")
    Marker(
        "1", "pylock.cu126.toml", "0" * 64, "3.12", "2.14.1", "cu126", "f", {}
    ).write(site.venv)
    record_environment(site.venv, "1", is_created=True)
    (site.venv / "pylock.cu126.toml").touch()
    (site.folder / "torch" / "__init__.py").unlink()
    (finding,) = site.findings()
    command = "gpuinstall sync --reinstall-package torch"
    assert finding.fix == f"{command} --venv {quote_word(site.venv)}"


def test_missing_requirement_is_installed_by_its_specifier(site):
    site.add("pandas", "2.3.0")
    (package,) = [one for one in installed_in(site.venv) if one.name == "pandas"]
    evidence = doctor_evidence(venv=Path("/e"))
    asked = Requirement("numpy[extra]>=2; python_version > '3'")
    assert (
        str(evidence.missing_advice(package, asked))
        == f"uv pip install --python {quote_word(Path('/e') / PYTHON)} 'numpy>=2'"
    )


def test_environment_without_lock_is_fixed_by_install_into(site):
    (torch,) = [one for one in installed_in(site.venv) if one.name == "torch"]
    evidence = doctor_evidence(venv=site.venv)
    assert (
        str(evidence.missing_advice(torch, Requirement("filelock")))
        == f"gpuinstall install --into --venv {quote_word(site.venv)}"
    )
