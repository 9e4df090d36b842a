from __future__ import annotations

from typing import TYPE_CHECKING

import tomli

from gpuinstall.catalog.pages import parse_page
from gpuinstall.lock.project import UNKNOWN, Project, page
from tests.unit.lock.wheels_here import listed, torch

if TYPE_CHECKING:
    from pathlib import Path

TRITON = listed("triton-3.8.0-cp312-cp312-manylinux_2_28_x86_64.whl", sha256="a" * 64)


def test_every_package_with_a_page_is_named_with_its_source() -> None:
    project = Project(("torch==2.14.1+cu126", "numpy"), "3.12", {"torch": (torch(),), "triton": (TRITON,)})
    document = tomli.loads(project.document("file:///private/family"))
    assert document["project"]["dependencies"] == ["torch==2.14.1+cu126", "numpy", "triton"]
    assert document["project"]["requires-python"] == "==3.12.*"
    assert document["tool"]["uv"]["sources"] == {"torch": {"index": "family"}, "triton": {"index": "family"}}
    assert document["tool"]["uv"]["index"] == [{"name": "family", "url": "file:///private/family", "explicit": True}]


def test_a_package_asked_for_under_another_spelling_is_not_asked_for_twice() -> None:
    project = Project(("Torch_TensorRT>2",), "3.12", {"torch-tensorrt": ()})
    assert tomli.loads(project.document("file:///x"))["project"]["dependencies"] == ["Torch_TensorRT>2"]


def test_a_page_reads_back_as_the_wheels_it_was_written_from() -> None:
    wheels = (torch(metadata=True, metadata_sha256="b" * 64), TRITON)
    back = parse_page(page(wheels), "text/html", "https://elsewhere.example/")
    assert [wheel.url for wheel in back] == [wheel.url for wheel in wheels]
    assert [wheel.sha256 for wheel in back] == [UNKNOWN, "a" * 64]
    assert [wheel.metadata_sha256 for wheel in back] == ["b" * 64, None]


def test_an_address_cannot_break_out_of_its_page() -> None:
    wicked = torch(source='https://index.example/"><a href="https://evil.example')
    assert '"><a' not in page((wicked,)).replace('">torch', "")


def test_the_project_is_written_with_one_folder_for_each_page(tmp_path: Path) -> None:
    Project(("torch",), "3.12", {"torch": (torch(),)}).write(tmp_path)
    assert (tmp_path / "pyproject.toml").is_file()
    assert "torch-2.14.1" in (tmp_path / "family" / "torch" / "index.html").read_text(encoding="utf-8")
