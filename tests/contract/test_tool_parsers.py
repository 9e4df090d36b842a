"""Tests that other tools can read exports and templates."""

from pathlib import Path

import pytest
import yaml

from gpuinstall.base import process
from gpuinstall.base.uv import uv
from gpuinstall.export.formats import format_conda_environment
from gpuinstall.export.uv_project import format_uv_tables
from tests.unit.export.locks import cpu_lock, cuda_lock

RECIPES = Path(__file__).resolve().parents[2] / "docs" / "recipes"
DSTACK = """
import sys, yaml
from dstack._internal.core.models.configurations import parse_apply_configuration
document = {"type": "task", "commands": ["true"], **yaml.safe_load(open(sys.argv[1]))}
resources = parse_apply_configuration(document).resources
print(resources.gpu.vendor.value, resources.gpu.name)
"""
SCHEMA = """
import json, sys, tomllib
from importlib.resources import files
from jsonschema import validate
tool, path, *keys = sys.argv[1:]
schema = files("validate_pyproject_schema_store") / "resources" / f"{tool}.schema.json"
document = tomllib.load(open(path, "rb"))
for key in keys:
    document = document[key]
validate(document, json.loads(schema.read_text()))
print("valid")
"""
CONDA = """
import asyncio, json, os, sys, yaml
from rattler import BuildString, GenericVirtualPackage, PackageName, Version, solve
folder, file = sys.argv[1:]
zero = BuildString("0")
for subdir, names in (("linux-64", ("python-3.12.1-0", "pip-26.1-0")), ("noarch", ())):
    records = {}
    for name, version, build in (text.split("-") for text in names):
        record = {"name": name, "version": version, "build": build, "build_number": 0, "depends": []}
        records[f"{name}-{version}-{build}.conda"] = {**record, "subdir": subdir}
    os.makedirs(f"{folder}/{subdir}")
    with open(f"{folder}/{subdir}/repodata.json", "w") as repodata:
        json.dump({"info": {"subdir": subdir}, "packages": {}, "packages.conda": records}, repodata)
specs = [spec for spec in yaml.safe_load(open(file))["dependencies"] if isinstance(spec, str)]
for cuda, glibc in (("12.0", "2.28"), ("13.0", "2.39"), ("11.8", "2.39"), ("12.0", "2.17")):
    machine = []
    for name, version in (("__cuda", cuda), ("__glibc", glibc)):
        machine.append(GenericVirtualPackage(PackageName(name), Version(version), zero))
    try:
        solved = asyncio.run(solve([f"file://{folder}"], specs, platforms=["linux-64", "noarch"], virtual_packages=machine))
        print(sorted(record.name.normalized for record in solved))
    except Exception as error:
        print("refused" if f"__{'cuda' if cuda == '11.8' else 'glibc'}" in str(error) else error)
"""
SKYPILOT_TASK = """
import sys, sky, yaml
from sky.utils import common_utils, schemas
document = yaml.safe_load(open(sys.argv[1]))
common_utils.validate_schema(document, schemas.get_task_schema(), "")
task = sky.Task.from_yaml_config(document)
print(task.setup, task.run)
"""
DSTACK_COMMANDS = """
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


@pytest.mark.heavy
def test_kubernetes_schema_accepts_the_documented_node_affinity():
    kubernetes = pytest.importorskip(
        "kubernetes_validate", reason="needs kubernetes-validate: lockfiles/heavy.txt"
    )

    lines = (RECIPES.parent / "cluster.md").read_text("utf-8").splitlines()
    [affinity] = [line for line in lines if line.startswith("affinity:")]
    container = {"name": "torch", "image": "registry.example/torch"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "torch"},
        "spec": {"containers": [container], **yaml.safe_load(affinity)},
    }
    kubernetes.validate(pod, "1.37", strict=True)


@pytest.mark.network
@pytest.mark.heavy
def test_dstack_parses_the_documented_gpu_resources(tmp_path):
    lines = (RECIPES.parent / "cluster.md").read_text("utf-8").splitlines()
    [resources] = [line for line in lines if line.startswith("resources: {gpu: ")]
    file = tmp_path / "resources.yml"
    file.write_text(resources, "utf-8")
    shown = ran(DSTACK, ["dstack==0.22.5"], file)
    assert shown == "nvidia ['A100', 'H100']\n"


@pytest.mark.network
@pytest.mark.heavy
def test_uv_schema_accepts_exported_tables(tmp_path):
    locks = [cuda_lock(), cuda_lock("cu130"), cpu_lock()]
    file = tmp_path / "uv.toml"
    file.write_text(format_uv_tables(locks, "https://index.example/whl"), "utf-8")
    packages = ["validate-pyproject-schema-store==2026.10.23", "jsonschema"]

    assert ran(SCHEMA, packages, "uv", file, "tool", "uv") == "valid\n"


@pytest.mark.network
@pytest.mark.heavy
def test_conda_rejects_older_driver_and_glibc(tmp_path):
    file = tmp_path / "environment.yml"
    file.write_text(format_conda_environment(cuda_lock()), "utf-8")

    assert ran(CONDA, ["py-rattler==0.28.0", "pyyaml"], tmp_path / "channel", file) == (
        "['pip', 'python']\n['pip', 'python']\nrefused\nrefused\n"
    )


@pytest.mark.network
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("package", "program", "recipe", "shown"),
    [
        (
            "skypilot==0.14.1",
            SKYPILOT_TASK,
            "skypilot.yml",
            "python3 bootstrap.py sync .venv/bin/python train.py",
        ),
        (
            "dstack==0.22.5",
            DSTACK_COMMANDS,
            "dstack.yml",
            "gpuinstall run --any --venv /opt/torch/.venv jupyter lab",
        ),
        ("spython==0.3.14", APPTAINER, "apptainer.def", "registry.example/torch-any:1"),
    ],
    ids=["skypilot", "dstack", "apptainer"],
)
def test_cluster_tools_parse_their_recipe_files(package, program, recipe, shown):
    assert shown in ran(program, [package], RECIPES / recipe)


def ran(program, packages, *words):
    """Run a program in an environment with packages, and return its output."""
    run: list[str | Path] = [
        uv(),
        "run",
        "--no-project",
        "--isolated",
        "--python",
        "3.11",
    ]
    for package in packages:
        run += ["--with", package]
    done = process.run([*run, "python", "-c", program, *words], seconds=600)
    assert done.ok, done.out + done.err
    return done.out
