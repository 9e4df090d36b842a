"""The examples for Ansible and Kubernetes: what they call is there, and their own tools take them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from gpuinstall import process
from gpuinstall.cli.main import entrance
from tests.lab.clone import ROOT

TOOLS = Path(sys.executable).parent
PLAYBOOK = ROOT / "docs" / "recipes" / "fleet-playbook.yml"
JOB = ROOT / "docs" / "recipes" / "fleet-job.yml"


def tasks() -> list[dict[str, Any]]:
    return [task for play in yaml.safe_load(PLAYBOOK.read_text("utf-8")) for task in play["tasks"]]


def commands() -> list[list[str]]:
    """Every command line of both, with one of the values for what a loop or a variable fills in."""
    (container,) = yaml.safe_load(JOB.read_text("utf-8"))["spec"]["template"]["spec"]["containers"]
    found = [container["command"]]
    for task in tasks():
        for item in task.get("loop", [""]):
            argv = task["ansible.builtin.command"]["argv"]
            found.append(
                [
                    word.replace("{{ item }}", item).replace("{{ run_dir }}", "/run-dir")
                    for word in argv
                ]
            )
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_what_a_recipe_calls_is_a_command_with_such_options(words: list[str]) -> None:
    command: click.Command | None = entrance
    context = click.Context(entrance, **entrance.context_settings)
    tool, *words = words
    while isinstance(command, click.Group) and not command.invoke_without_command:
        name, *words = words
        command = command.get_command(context, name)

    assert tool == "gpuinstall"
    assert command is not None
    with suppress(click.exceptions.Exit):
        command.make_context("tool", words, parent=context)


def test_a_node_that_fails_keeps_no_other_from_its_record() -> None:
    on_nodes = [task for task in tasks() if task["ansible.builtin.command"]["argv"][1] == "node"]

    assert len(on_nodes) == 2
    assert all(task["ignore_errors"] for task in on_nodes)


def test_the_job_has_one_pod_on_each_node_and_no_rights() -> None:
    job = yaml.safe_load(JOB.read_text("utf-8"))["spec"]
    pod = job["template"]["spec"]
    (spread,), (container,) = pod["topologySpreadConstraints"], pod["containers"]

    assert job["completionMode"] == "Indexed"
    assert (spread["maxSkew"], spread["whenUnsatisfiable"]) == (1, "DoNotSchedule")
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform == "win32", reason="Ansible does not run on Windows")
def test_ansible_takes_the_playbook(tmp_path: Path) -> None:
    words: list[str | Path] = [
        TOOLS / "ansible-playbook",
        "--syntax-check",
        "-i",
        "localhost,",
        PLAYBOOK,
    ]
    done = process.run(words, env={**os.environ, "ANSIBLE_HOME": str(tmp_path)}, seconds=60)

    assert done.ok, done.err


@pytest.mark.heavy
def test_kubernetes_takes_the_job() -> None:
    done = process.run([TOOLS / "kubernetes-validate", "--strict", JOB], seconds=60)

    assert done.ok, done.out + done.err
