"""The templates for those who rent GPUs, each read by the parser of the tool that it is for."""

import sys
from pathlib import Path

import pytest

from gpuinstall.base import process
from gpuinstall.base.uv import uv

RECIPES = Path(__file__).resolve().parents[2] / "docs" / "recipes"
SKYPILOT = """
import sys, sky, yaml
from sky.utils import common_utils, schemas
document = yaml.safe_load(open(sys.argv[1]))
common_utils.validate_schema(document, schemas.get_task_schema(), "")
task = sky.Task.from_yaml_config(document)
print(task.setup, task.run)
"""
DSTACK = """
import sys, yaml
from dstack._internal.core.models.configurations import parse_apply_configuration
print(*parse_apply_configuration(yaml.safe_load(open(sys.argv[1]))).commands)
"""
APPTAINER = """
import sys
from spython.main.parse.parsers import get_parser
recipe = get_parser("singularity")(sys.argv[1]).recipe
stage = next(iter(recipe.values())) if isinstance(recipe, dict) else recipe
print(stage.fromHeader, stage.cmd or stage.entrypoint)
"""


@pytest.mark.network
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("package", "program", "recipe", "shown"),
    [
        (
            "skypilot==0.14.1",
            SKYPILOT,
            "skypilot.yml",
            "python3 bootstrap.py sync .venv/bin/python train.py",
        ),
        (
            "dstack==0.22.5",
            DSTACK,
            "dstack.yml",
            "gpuinstall run --any --venv /opt/torch/.venv jupyter lab",
        ),
        ("spython==0.3.14", APPTAINER, "apptainer.def", "registry.example/torch-any:1"),
    ],
    ids=["skypilot", "dstack", "apptainer"],
)
def test_the_tools_own_parser_reads_the_template(package, program, recipe, shown):
    words = [
        uv(),
        "run",
        "--no-project",
        "--isolated",
        "--python",
        "3.11",
        "--with",
        package,
        "python",
        "-c",
        program,
    ]
    done = process.run([*words, RECIPES / recipe], seconds=600)
    assert done.ok, done.out + done.err
    assert shown in done.out


@pytest.mark.heavy
def test_kubernetes_schemas_accept_the_pod():
    tool = Path(sys.executable).with_name("kubernetes-validate")
    done = process.run([tool, "--strict", RECIPES / "kubernetes-pod.yml"], seconds=60)
    assert done.ok, done.out + done.err


def test_a_template_sets_the_machine_up_in_one_line():
    lines = (RECIPES / "skypilot.yml").read_text("utf-8").splitlines()
    assert "setup: python3 bootstrap.py sync" in lines
