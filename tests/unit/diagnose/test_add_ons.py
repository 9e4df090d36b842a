"""What the custom nodes of an application ask for against the packages that are there."""

from pathlib import Path

import pytest

from gpuinstall.base.machine import Machine
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.diagnose.add_ons import AddOn, read_add_ons
from tests.unit.diagnose.evidence import found, holding

INSTALLED = holding(("torch", "2.13.0+cu126"), ("torchvision", "0.28.0+cu126"), ("numpy", "2.3.1"))
LINUX = Machine("linux", "x86_64", "glibc", "2.36")


def asking(name, *requirements):
    return AddOn(name, Path(name, "requirements.txt"), tuple(map(parse_requirement, requirements)))


def findings(*add_ons):
    told = found(contents=INSTALLED, add_ons=add_ons)
    return [finding for finding in told if finding.code.startswith("add-on")]


@pytest.mark.parametrize(
    "requirement", ["torch==2.1.2", "torch<2.4", "torchvision==0.16.2", "torch~=2.2.0"]
)
def test_an_add_on_that_excludes_the_torch_that_is_there_would_replace_it(requirement):
    [told] = findings(asking("painter", "numpy", requirement))

    assert told.code == "add-on-replaces-torch"
    assert requirement in told.message
    assert not told.blocking
    assert "--dry-run" in str(told.fix)


@pytest.mark.parametrize(
    "requirement",
    ["torch", "torch>=2.0", "torchvision", "numpy>=1.26", "opencv-python", "torchsde"],
)
def test_what_the_environment_meets_or_lacks_is_not_told(requirement):
    assert findings(asking("painter", requirement)) == []


def test_an_extension_that_is_not_there_is_told_once_for_all_who_ask():
    [told] = findings(asking("brush", "flash_attn"), asking("painter", "flash-attn>=2.5"))

    assert told.code == "add-on-needs-extension"
    assert told.message == "flash-attn is not installed, which brush, painter asks for"


def test_the_files_of_a_folder_are_read_without_what_counts_elsewhere(tmp_path):
    for name in ("comfy", "venv", "custom_nodes/painter", "custom_nodes/broken"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "main.py").touch()
    text = "torch==2.1.2 ; sys_platform == 'win32'\nnumpy  # of all\n"
    (tmp_path / "custom_nodes" / "painter" / "requirements.txt").write_text(text, encoding="utf-8")
    (tmp_path / "custom_nodes" / "broken" / "requirements.txt").write_text("-r gone.txt\n", "utf-8")

    [painter] = read_add_ons(tmp_path / "venv", LINUX, "3.12")

    assert painter.name == "painter"
    assert [requirement.name for requirement in painter.requirements] == ["numpy"]
