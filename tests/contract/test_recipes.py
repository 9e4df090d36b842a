"""Tests of recipes for other tools: their syntax and commands."""

import json
import os
import re
import shlex
import shutil

import pytest
import yaml

from gpuinstall.base import process
from gpuinstall.base.uv import uv
from gpuinstall.cli.commands import COMMANDS
from gpuinstall.cli.main import convert_bootstrap_arguments
from tests.lab.advice import check_hint_line
from tests.lab.clone import ROOT

HOOKS = ROOT / ".pre-commit-hooks.yaml"
RECIPES = ROOT / "docs" / "recipes"
JOB = RECIPES / "kubernetes-job.yml"
WORKFLOW = RECIPES / "github-workflow.yml"
GITLAB = RECIPES / "gitlab-ci.yml"
SHELL = RECIPES / "ci.sh"
RENEWAL = RECIPES / "github-renewal.yml"
GUIDES = (ROOT / "docs" / "teams.md", ROOT / "docs" / "ci.md")
PAGES = (HOOKS, JOB, WORKFLOW, RENEWAL, GITLAB, SHELL, *GUIDES)


def read(path):
    return yaml.safe_load(path.read_text("utf-8"))


def calls(text):
    """Return the arguments of each gpuinstall command in a text."""
    called = re.findall(
        r"(?:^|[\s/`\"(])(gpuinstall|bootstrap\.py) ((?:-|[a-z]+\b)[^`#|)&\n]*)", text
    )
    split = [(name, shlex.split(rest.rstrip("."))) for name, rest in called]
    found = [
        words if name == "gpuinstall" else convert_bootstrap_arguments(words)
        for name, words in split
    ]
    return [words for words in found if words[0] in COMMANDS and words != ["export"]]


def everything_called():
    return [words for page in PAGES for words in calls(page.read_text("utf-8"))]


def test_recipes_call_valid_commands():
    called = everything_called()

    assert ["lock", "check"] in called
    assert ["install", "--backend", "cpu"] in called
    assert {
        " ".join(words): fault for words in called if (fault := fault_of(words))
    } == {}


def fault_of(words):
    """Return why gpuinstall rejects these arguments, or None."""
    # The folder must exist.
    return check_hint_line(shlex.join(["gpuinstall", *words]).replace("DIR", "."))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_recipes_never_install_gpuinstall_from_an_index(path):
    text = path.read_text("utf-8")
    assert not re.search(
        r"(pip|pipx|uv|uvx|uv tool) (install|run|add)? ?[^\n`]*\bgpuinstall\b(?!-)",
        text,
    )


def test_lmod_module_provides_a_python_wrapper(tmp_path):
    folder = tmp_path / "project"
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    shutil.copy(RECIPES / "module-python", python)
    stand_in = tmp_path / "programs" / "gpuinstall"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\necho "$@"\n', "utf-8")
    stand_in.chmod(0o755)
    path = f"{_paths_of_module(folder)}:{stand_in.parent}:{os.environ['PATH']}"

    done = process.run(["sh", "-c", "python -c pass"], env={"PATH": path})

    assert done.out == f"run --any --venv {folder}/.venv python -c pass\n"


def _paths_of_module(folder):
    """Return the folders that the Tcl module adds to PATH."""
    if shutil.which("tclsh") is None:
        pytest.skip("no tclsh here")
    module = (RECIPES / "module.tcl").read_text("utf-8")
    assert module.startswith("#%Module\n")
    commands = "proc module-whatis args {}; proc conflict args {}; proc prepend-path {name path} {puts $path}\n"
    script = commands + module.replace("/shared/project", str(folder))
    done = process.run(["tclsh"], text=script)
    assert done.ok, done.err
    return done.out.strip()


def test_notebook_kernel_runs_a_valid_command():
    kernel = json.loads((RECIPES / "kernel.json").read_text("utf-8"))

    assert fault_of(kernel["argv"][1:]) is None


def test_kubernetes_job_requests_gpu_and_runs_as_nonroot():
    pod = read(JOB)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }


@pytest.mark.network
@pytest.mark.heavy
def test_pre_commit_accepts_the_hooks():
    done = process.run(
        [uv(), "tool", "run", "pre-commit", "validate-manifest", HOOKS], seconds=300
    )
    assert done.ok, done.out + done.err


def test_skypilot_template_has_one_setup_command():
    lines = (RECIPES / "skypilot.yml").read_text("utf-8").splitlines()
    assert "setup: python3 bootstrap.py sync" in lines
