"""Metadata of a project without a build."""

from gpuinstall.base.requirement import parse_requirement
from gpuinstall.lock.request.project import (
    find_nested_requirements,
    read_folder_project,
)
from tests.lab.parsed import required, written

WHOLE = """
[project]
name = "Paper_Code"
version = "0.1"
dependencies = ["torch==2.0.1"]
optional-dependencies = { train = ["wandb"], all = ["paper-code[train]"] }
"""


def test_requirements_include_selected_extras(tmp_path):
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "pyproject.toml").write_text(WHOLE, "utf-8")

    project = read_folder_project(parse_requirement("-e ./paper[train]"), tmp_path)

    row = {"name": "paper-code", "version": "0.1", "requires-dist": []}
    assert project == (row, [*required("torch==2.0.1", "wandb")])


def test_dynamic_metadata_requires_a_build(tmp_path):
    requirement = parse_requirement("-e .")
    texts = {
        "no pyproject.toml": "",
        "dynamic Python": f'{WHOLE}dynamic = ["requires-python"]',
        "Poetry": '[project]\nname = "a"\nversion = "1"\n[tool.poetry]\nname = "a"',
        "dynamic requirements": WHOLE.replace(
            'dependencies = ["torch==2.0.1"]', 'dynamic = ["dependencies"]'
        ),
        "malformed": WHOLE.replace('"torch==2.0.1"', "{}"),
        "no list": WHOLE.replace('["torch==2.0.1"]', "3"),
    }
    read = []
    for case, text in texts.items():
        (tmp_path / "pyproject.toml").write_text(text, "utf-8")
        if read_folder_project(requirement, tmp_path):
            read.append(case)

    assert read == []


def test_self_referencing_extra_requires_a_build(tmp_path):
    (tmp_path / "pyproject.toml").write_text(WHOLE, "utf-8")

    assert read_folder_project(parse_requirement(".[all]"), tmp_path) is None


def test_nested_workspace_members_are_requested(tmp_path):
    project = '[project]\nname = "{}"\nversion = "1"\ndependencies = ["{}"]\n[tool.uv.sources]\n{} = {{ workspace = true }}\n'
    root = '[tool.uv.workspace]\nmembers = ["*"]\n'
    (tmp_path / "pyproject.toml").write_text(root, "utf-8")
    for name, further in ("a", "b"), ("b", "c"), ("c", "a"):
        (tmp_path / name).mkdir()
        text = project.format(name, further, further)
        (tmp_path / name / "pyproject.toml").write_text(text, "utf-8")
    found = find_nested_requirements(
        required("-e ./a", "b @ ./b", "c==1", "six"), tmp_path, no_sources=()
    )
    assert written(found) == (
        f"-e c @ {tmp_path}/b/../c",
        f"-e a @ {tmp_path}/c/../a",
    )
