"""Tests of a project's settings."""

import pytest

from gpuinstall.base.config import parse_config, read_config
from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import Request, Sourcing
from gpuinstall.base.requirement import TextOrigin

SETTINGS = """
[project]
name = "thing"
version = "1"
requires-python = ">=3.10,<3.13"

[tool.gpuinstall]
requirements = ["torch>=2.9", "torchvision"]
targets = ["cu126", "cpu"]
backends = ["cu126", "cu130", "cpu"]
torch-index = "https://index.example/whl"
"""

BACKENDS = {
    "('cu126', 'cu130', 'cpu')": TextOrigin(
        "pyproject.toml", "[tool.gpuinstall] backends"
    )
}
GROUPS = [("dev", 12), ("docs", 13)]


def test_config_reads_every_setting(tmp_path):
    (tmp_path / "pyproject.toml").write_text(SETTINGS)

    assert read_config(tmp_path) == Request(
        requirements=("torch>=2.9", "torchvision"),
        python=">=3.10,<3.13",
        required_python=">=3.10,<3.13",
        allowed_backends=("cu126", "cu130", "cpu"),
        targets=("cu126", "cpu"),
        places={">=3.10,<3.13": TextOrigin("pyproject.toml"), **BACKENDS},
        sourcing=Sourcing(torch_index="https://index.example/whl"),
    )


def test_python_setting_precedes_version_file_and_project(tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text(SETTINGS)
    (tmp_path / ".python-version").write_text("# ours\n3.12.4\n")
    config = read_config(tmp_path)
    places = {"3.12": TextOrigin(".python-version"), **BACKENDS}
    assert (config.python, config.places) == ("3.12", places)

    project.write_text(f'{SETTINGS}python = "3.11"\n')
    assert read_config(tmp_path).python == "3.11"


VERSION_FILES = {
    "python3.12\n": "3.12",
    "pypy3.10\ncpython@3.12.1": "3.12",
    "cpython-3.13\n": "3.13",
    "cpython@3.12": "3.12",
    ">=3.12,<3.13  \n": ">=3.12,<3.13",
    "myenv": None,
    "my-env\n": None,
}


def test_version_files_of_uv_and_pyenv_are_read():
    found = {text: parse_config({}, text).python for text in VERSION_FILES}
    assert found == VERSION_FILES


def test_required_python_includes_default_dependency_groups():
    groups = {name: {"requires-python": f">=3.{minor}"} for name, minor in GROUPS}
    project = {"requires-python": ">=3.11"}
    document = {"project": project, "tool": {"uv": {"dependency-groups": groups}}}
    assert parse_config(document).python == ">=3.11,>=3.12"
    for malformed in ({"dev": "3.12"}, {"dev": {"requires-python": 3}}):
        with pytest.raises(UsageError):
            parse_config({"tool": {"uv": {"dependency-groups": malformed}}})
    assert parse_config(document, "", ["docs"]).python == ">=3.11,>=3.12,>=3.13"
    uv = {"dependency-groups": groups, "default-groups": ["docs"]}
    assert parse_config({"tool": {"uv": uv}}).python == ">=3.13"


def test_python_constraints_of_poetry_are_read():
    expected = {
        "^3.13": ">=3.13,<4",
        "~3.11": ">=3.11,<3.12",
        ">=3.9,<3.13": ">=3.9,<3.13",
        "3.12.*": "==3.12.*",
        "*": None,
        "^3.8 || ^3.10": "<4,>=3.8",
    }

    def python(written, **own):
        poetry = {"poetry": {"dependencies": {"python": written}}}
        return parse_config({"tool": poetry, "project": own}).python

    assert {written: python(written) for written in expected} == expected
    assert python("^3.13", **{"requires-python": ">=3.10"}) == ">=3.10"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[tool.gpuinstall]\nbackend = 'cu126'\n", "backend"),
        ("[tool.gpuinstall]\nbackends = 'cu126'\n", "backends"),
        ("[tool.gpuinstall]\nrequirements = [1]\n", "requirements"),
        ("[tool.gpuinstall]\npython = 3.12\n", "python"),
        ("[tool.gpuinstall\n", "pyproject.toml"),
        ("tool = 1\n", "tool"),
        ("[tool]\ngpuinstall = 1\n", "tool.gpuinstall = 1 is not a table"),
        ("project = 1\n", "project"),
        ("[project]\nrequires-python = 3\n", "requires-python"),
    ],
)
def test_malformed_settings_are_reported_by_key(tmp_path, text, word):
    (tmp_path / "pyproject.toml").write_text(text)

    with pytest.raises(UsageError) as caught:
        read_config(tmp_path)

    assert caught.value.code == "config-malformed"
    assert word in caught.value.message


def test_torch_index_setting_allows_its_backend():
    def allowed(**settings):
        index = {"torch-index": "https://index.example/whl/cu126", **settings}
        config = parse_config({"tool": {"gpuinstall": index}})
        assert config.sourcing.torch_index == "https://index.example/whl"
        return config.allowed_backends

    assert allowed() == ("cu126",)
    assert allowed(backends=["cpu"]) == ("cpu",)
    assert allowed(backends=[]) == ()
