"""Tests of GitHub workflows: schema, security, and make targets."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from gpuinstall.base import process
from tests.contract.test_powershell import parsed
from tests.lab.clone import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RECIPES = ROOT / "docs" / "recipes"
FOR_OTHERS = sorted(RECIPES.glob("github-*.yml"))
SCHEMA = "check-jsonschema --builtin-schema vendor.github"


def jobs(path):
    document = yaml.safe_load(path.read_text("utf-8"))
    return document["jobs"]


@pytest.mark.parametrize(
    ("program", "files"),
    [
        (f"{SCHEMA}-workflows", [*WORKFLOWS, *FOR_OTHERS]),
        (f"{SCHEMA}-actions", [ROOT / "action.yml"]),
        (
            "check-jsonschema --builtin-schema vendor.gitlab-ci",
            [RECIPES / "gitlab-ci.yml"],
        ),
        ("zizmor --offline --no-progress --quiet", [*WORKFLOWS, *FOR_OTHERS]),
        *(
            pytest.param(
                "kubernetes-validate --strict", [path], marks=pytest.mark.heavy
            )
            for path in sorted(RECIPES.glob("kubernetes-*.yml"))
        ),
    ],
)
def test_linters_accept_workflows(program, files):
    name, *words = program.split()
    done = process.run([Path(sys.executable).with_name(name), *words, *files])

    assert done.ok, done.out + done.err


def test_workflows_call_only_existing_make_targets():
    targets = set(
        re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    )
    lines = [
        step["run"]
        for job in jobs(WORKFLOWS[-1]).values()
        for step in job["steps"]
        if "run" in step
    ]
    called = {
        line.split()[1] for line in lines if line.startswith(("make ", ".\\make.ps1 "))
    }

    assert [
        line for line in lines if not line.startswith(("make ", ".\\make.ps1 "))
    ] == ["python bootstrap.py plan"]
    assert called <= targets


def test_windows_workflow_steps_are_valid_powershell():
    blocks = []
    for path in WORKFLOWS:
        for job in jobs(path).values():
            runners = (
                job["runs-on"],
                *job.get("strategy", {}).get("matrix", {}).get("runner", ()),
            )
            if any(str(runner).startswith("windows") for runner in runners):
                blocks += [step["run"] for step in job["steps"] if "run" in step]

    assert blocks == [".\\make.ps1 test-only", "python bootstrap.py plan"]
    assert [block for block in blocks if parsed(block).root_node.has_error] == []


def test_make_ps1_contains_the_makefile_test_command():
    script = (ROOT / "make.ps1").read_text("utf-8")
    recipe = re.search(
        r"^TESTS := \$\(DEV\) (.+)$",
        (ROOT / "Makefile").read_text("utf-8"),
        re.MULTILINE,
    )

    assert not parsed(script).root_node.has_error
    assert recipe is not None
    assert all(f"'{word}'" in script for word in recipe[1].split())
