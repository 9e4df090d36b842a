"""Findings that require the environment's interpreter."""

import pytest

from gpuinstall.diagnose.examination import requirements_unmet
from tests.unit.diagnose.evidence import Site


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / ".venv")


def unmet(site, python="3.12.1"):
    found = requirements_unmet(site.evidence, python)
    return {finding.message: finding for finding in found}


def test_unmet_requirements_of_torch_have_one_fix(site):
    site.add("torch", "2.14.1", "filelock", "triton==3.5.0")
    site.add("triton", "3.4.0")

    found = {message: str(finding.fixes[0]) for message, finding in unmet(site).items()}

    install = f"gpuinstall install --into --venv {site.venv}"
    assert found == {
        "torch 2.14.1 requires filelock, but it is not installed": install,
        "torch 2.14.1 requires triton==3.5.0, but 3.4.0 is installed": install,
    }


def test_requirements_for_other_platforms_are_ignored(site):
    site.add(
        "app",
        "1.0",
        'tomli; python_version < "3.11"',
        'pywin32; sys_platform == "win32"',
        'xlrd; extra == "excel"',
        'importlib-metadata; python_version < "3.12"',
    )
    assert list(unmet(site, "3.11.7")) == [
        "app 1.0 requires importlib-metadata, but it is not installed"
    ]


def test_only_torch_companion_mismatches_are_blocking(site):
    site.add("torch", "2.14.1")
    site.add("torchaudio", "2.10.0", "torch==2.10.0")
    site.add("app", "1.0", "torch<2.14", "absent")

    found = unmet(site)

    companion = found[
        "torchaudio 2.10.0 requires torch==2.10.0, but 2.14.1 is installed"
    ]
    assert (companion.code, companion.id, companion.blocking) == (
        "torchaudio-mismatch",
        "F48",
        True,
    )
    again = f"gpuinstall install --into --venv {site.venv} torch torchaudio"
    assert (companion.fix or "").startswith(again)
    assert not found["app 1.0 requires absent, but it is not installed"].blocking
    assert not found["app 1.0 requires torch<2.14, but 2.14.1 is installed"].blocking
