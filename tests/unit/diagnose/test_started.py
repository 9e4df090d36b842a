"""Findings that require the environment's interpreter."""

import pytest

from gpuinstall.base.shell import quote_word
from gpuinstall.diagnose.examination import excluded_gpus, requirements_unmet
from tests.unit.diagnose.evidence import Site
from tests.unit.plan.machines import machine


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / ".venv")


def unmet(site):
    found = requirements_unmet(site.evidence)
    return {finding.message: finding for finding in found}


def test_unmet_requirements_of_torch_have_one_fix(site):
    site.add("torch", "2.14.1", "filelock", "triton==3.5.0")
    site.add("triton", "3.4.0")

    found = {message: str(finding.fixes[0]) for message, finding in unmet(site).items()}

    install = f"gpuinstall install --into --venv {quote_word(site.venv)}"
    assert found == {
        "torch 2.14.1 requires filelock, but it is not installed": install,
        "torch 2.14.1 requires triton==3.5.0, but 3.4.0 is installed": install,
    }


def test_requirements_for_other_platforms_are_ignored(tmp_path):
    site = Site(tmp_path / ".venv", "3.11.7")
    site.add(
        "app",
        "1.0",
        'tomli; python_version < "3.11"',
        'pywin32; sys_platform == "win32"',
        'xlrd; extra == "excel"',
        'importlib-metadata; python_version < "3.12"',
    )
    assert list(unmet(site)) == [
        "app 1.0 requires importlib-metadata, but it is not installed"
    ]


def test_only_torch_companion_mismatches_are_blocking(site):
    site.add("torch", "2.14.1")
    site.add("torchaudio", "2.10.0", "torch==2.10.0")
    site.add("app", "1.0", "torch<2.14", "absent")

    found = unmet(site)

    (companion,) = site.findings()
    assert (
        companion.message
        == "torchaudio 2.10.0 requires torch==2.10.0, but 2.14.1 is installed"
    )
    assert (companion.code, companion.id, companion.blocking) == (
        "torchaudio-mismatch",
        "F48",
        True,
    )
    again = f"gpuinstall install --into --venv {quote_word(site.venv)} torch torchaudio"
    assert (companion.fix or "").startswith(again)
    assert not found["app 1.0 requires absent, but it is not installed"].blocking
    assert not found["app 1.0 requires torch<2.14, but 2.14.1 is installed"].blocking


@pytest.mark.parametrize(
    ("torch", "torchvision", "torchaudio", "ids"),
    [
        ("2.8.0+rocm6.4", "0.23.0+cu128", "2.8.0+rocm6.4", ["F47"]),
        ("2.8.0+cu128", "0.23.0+cu128", "2.8.0+cpu", ["F48"]),
        ("2.8.0+xpu", "0.23.0+cu126", "2.8.0+cu126", ["F47", "F48"]),
        ("2.8.0+rocm7.0.2.git245bf6", "0.23.0+rocm7.0.2.git824e8c", "2.8.0", []),
        ("2.8.0", "0.23.0", "2.8.0", []),
    ],
)
def test_companions_of_another_build_are_reported(
    site, torch, torchvision, torchaudio, ids
):
    # The default index omits the label in METADATA.
    for name, version in {"torch": torch, "torchvision": torchvision}.items():
        site.add(name, version.partition("+")[0])
        module = site.folder / name / "version.py"
        module.write_text(f"__version__ = '{version}'\n")
    site.add("torchaudio", torchaudio)

    found = site.findings()

    mismatched = (finding.id for finding in found if "mismatch" in finding.code)
    assert sorted(mismatched) == ids
    assert all(" torch torch" in str(finding.fixes[0]) for finding in found)


def test_gpus_without_code_in_the_build_are_reported(site):
    site.add("torch", "2.15.0+cu130")
    gpus = machine("V100", "RTX 4090", driver="580.95.05", cuda="13.0")
    (finding,) = excluded_gpus(site.evidence, gpus)
    assert "V100" in finding.message
    assert (finding.id, finding.blocking) == ("F37", False)
    assert not list(excluded_gpus(site.evidence, machine("RTX 4090", "RTX 5090")))
