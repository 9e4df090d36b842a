import os

import pytest
from packaging.requirements import Requirement

from gpuinstall.environments.guard import (
    FamilyMember,
    format_constraints,
    format_pip_section,
    write_guard,
)

VERSIONS = {"torch": "2.14.1+cu126", "triton": "3.8.0"}
WHEEL = "https://index.example/whl/cu126/torchvision-0.29.2%2Bcu126-cp311-cp311-manylinux_2_28_x86_64.whl"


def test_torch_family_is_constrained_to_installed_build():
    beside = (
        FamilyMember("torchvision", address=WHEEL, sha256="ab" * 32),
        FamilyMember("torchaudio", version="2.11.0"),
        FamilyMember(
            "torchcodec", address="https://index.example/whl/cu126/torchcodec-1.whl"
        ),
        FamilyMember("xformers"),
    )
    lines = format_constraints(VERSIONS, beside, "cu126")
    assert lines == [
        "torch==2.14.1+cu126",
        "triton==3.8.0",
        f"torchvision @ {WHEEL}#sha256={'ab' * 32}",
        "torchaudio==2.11.0",
        "torchcodec @ https://index.example/whl/cu126/torchcodec-1.whl",
        "# no build of xformers is known for cu126:",
        "xformers==0+none.for.cu126",
    ]


@pytest.mark.parametrize(
    ("backend", "label"),
    [("rocm7.2", "rocm7.2"), ("jp6-cu126", "jp6.cu126"), ("cpu", "cpu")],
)
def test_constraint_placeholder_is_a_valid_version(backend, label):
    (_, line) = format_constraints({}, [FamilyMember("torchaudio")], backend)
    assert str(Requirement(line).specifier) == f"==0+none.for.{label}"


def test_pip_section_lists_constraints_and_links():
    assert format_pip_section(
        ("/srv/mine.txt", "file:///a%20b/c.txt"), ("https://index.example/torch/",)
    ) == [
        "[install]",
        "constraint = /srv/mine.txt file:///a%20b/c.txt",
        "find-links =",
        "    https://index.example/torch/",
    ]


def test_staged_pip_configuration_contains_the_final_path(tmp_path):
    final = tmp_path / "a b" / ".venv"
    lines = ["torch==2.14.1+cu126"]
    write_guard(tmp_path, final, "pylock.cu126.toml", lines, ("/srv/mine.txt",))
    address = (final / "constraints.txt").as_uri()
    assert "%20" in address
    settings = tmp_path / ("pip.ini" if os.name == "nt" else "pip.conf")
    _, *section = settings.read_text("utf-8").splitlines()
    assert section == ["[install]", f"constraint = /srv/mine.txt {address}"]
    first, *constraints = (tmp_path / "constraints.txt").read_text().splitlines()
    assert settings.name in first
    assert constraints == lines


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
@pytest.mark.parametrize(
    ("address", "mode"), [("me:token@index.example", 0o600), ("index.example", 0o644)]
)
def test_pip_configuration_with_credentials_is_private(tmp_path, address, mode):
    usual = os.umask(0o022)
    try:
        address = f"https://{address}/constraints.txt"
        write_guard(tmp_path, tmp_path, "pylock.cpu.toml", [], (address,))
    finally:
        os.umask(usual)
    written = next(tmp_path.glob("pip.*"))
    assert written.stat().st_mode & 0o777 == mode
