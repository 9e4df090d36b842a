"""Tests of the GitHub action's scripts, run by bash."""

import json
import os
import subprocess
import sys

import yaml
from tools.ci_summary import format_summary

from tests.lab.clone import ROOT


def action():
    return yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


def test_every_action_input_is_used_with_a_default():
    text = (ROOT / "action.yml").read_text("utf-8")

    assert all(
        "default" in told and f"inputs.{name} " in text
        for name, told in action()["inputs"].items()
    )
    assert all(
        step["shell"] == "bash" for step in action()["runs"]["steps"] if "run" in step
    )
    assert all(
        len(step["uses"].partition("@")[2]) == 40
        for step in action()["runs"]["steps"]
        if "uses" in step
    )


RESULT = {
    "command": "sync",
    "status": "success",
    "errors": [],
    "data": {
        "environment": {"torch": "2.14.1+cu126", "python": "3.12"},
        "verdict": {
            "status": "passed",
            "devices": [{"name": "RTX | 4090", "checks": [{"status": "passed"}] * 14}],
        },
        "lock": {"path": "pylock.cu126.toml", "status": "unchanged"},
        "bytes": 2_900_000_000,
        "seconds": 61.2,
    },
}
SUMMARY = """### gpuinstall sync: success

| | |
|---|---|
| Machine | RTX \\| 4090 |
| Build | torch 2.14.1+cu126, Python 3.12 |
| Verdict | passed, 14 checks on 1 devices |
| Lock | pylock.cu126.toml (unchanged) |
| Downloaded | 2,900 MB in 61 s |
"""


HOSTILE = "gpuinstall sync\n```\n<script>\n# big\r# bigger\u2028[a](https://x.example)\u202e\x1b[2K"


def test_action_summary_escapes_markdown():
    error = {"code": "stale", "message": f"torch &#x202e; ~~{HOSTILE}", "hint": HOSTILE}
    text = format_summary(
        {"command": "sync", "status": "error", "errors": [error], "data": None}
    )
    *_, message, empty, hint = text.split("\n", 7)

    assert (message.startswith("**"), message.endswith("** (`stale`)"), empty) == (
        True,
        True,
        "",
    )
    assert all(f"\\{sign}" in message for sign in "&~`<[")
    assert all(line.startswith("    ") for line in hint.splitlines())
    assert text.replace("\n", "").isprintable()


def test_action_runs_its_command_and_writes_a_summary(
    tmp_path,
):
    programs = tmp_path / "bin"
    programs.mkdir()
    said, path, output, page = (
        tmp_path / name for name in ("said", "path", "output", "summary")
    )
    log = f'#!/bin/sh\nprintf "%s|" {{}} "$@" >> {said}\n'
    python = f'case "$1" in *.py) [ "${{1##*/}}" = bootstrap.py ] || exec {sys.executable} "$@" ;; esac\n'
    (programs / "gpuinstall").write_text(
        log.format("gpuinstall") + f"cat <<'END'\n{json.dumps(RESULT)}\nEND\nexit 5\n"
    )
    (programs / "python3").write_text(
        f"#!/bin/sh\n{python}" + log.format("python3").partition("\n")[2]
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    files = {
        "GITHUB_PATH": str(path),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(page),
    }
    runner = {
        "GITHUB_ACTION_PATH": str(ROOT),
        "RUNNER_OS": "Linux",
        "RUNNER_TEMP": str(tmp_path),
    }
    inputs = {
        "COMMAND": "lock check",
        "REQUIREMENTS": "torch\n\n  numpy >= 2; extra=='a'\n",
        "OPTIONS": "--venv env",
    }
    # A home that does not exist has no owner.
    home = tmp_path / "home"
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home)}
    statuses = [
        subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env={**own, **runner, **files, **inputs},
            check=False,
            stdout=subprocess.DEVNULL,
        ).returncode
        for step in action()["runs"]["steps"]
        if "run" in step
    ]

    assert statuses == [0, 5], "the job ends as the command did"
    assert (
        said.read_text()
        == f"python3|{ROOT}/bootstrap.py|--version|gpuinstall|lock|check|--venv|env|torch|numpy >= 2; extra=='a'|--json|"
    )
    assert path.read_text() == f"{home}/.local/share/gpuinstall/bin\n"
    assert output.read_text().splitlines() == [
        f"path={home}/.local/share/gpuinstall/bin/gpuinstall",
        f"result={tmp_path}/gpuinstall.json",
    ]
    assert page.read_text() == SUMMARY


def test_action_failure_summary_contains_reason_and_fix():
    error = {
        "code": "driver-too-old",
        "message": "the driver <b>is</b> too old",
        "hint": "sudo apt install nvidia-driver",
    }
    text = format_summary(
        {
            "command": "install",
            "status": "error",
            "data": {"plan": {"build": None}},
            "errors": [error],
        }
    )

    assert (
        "**the driver \\<b\\>is\\</b\\> too old** (`driver-too-old`)\n\n    sudo apt"
        in text
    )
    document = json.loads(
        (ROOT / "docs" / "documents" / "lock.json").read_text("utf-8")
    )
    assert "| Lock | " in format_summary(document)
