"""The composite action: its steps are run by bash as a runner would, on this system."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]


def action() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    return loaded


def test_every_input_is_used_and_has_a_default() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")

    assert all("default" in told and f"inputs.{name} }}}}" in text for name, told in action()["inputs"].items())
    assert all(step["shell"] == "bash" for step in action()["runs"]["steps"])


def test_its_steps_make_the_tool_and_call_it_with_the_words_apart(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python3", "gpuinstall"):
        (programs / name).write_text(f'#!/bin/sh\nprintf "%s|" {name} "$@" >> "$SAID"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    said, path, output = (tmp_path / name for name in ("said", "path", "output"))
    runner = {"GITHUB_ACTION_PATH": "/the action", "GITHUB_PATH": str(path), "GITHUB_OUTPUT": str(output)}
    inputs = {"COMMAND": "sync", "REQUIREMENTS": "", "OPTIONS": "--venv env"}
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": "/home/ann", "SAID": str(said), "RUNNER_OS": "Linux"}
    for step in action()["runs"]["steps"]:
        script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        subprocess.run(script, env={**own, **runner, **inputs}, check=True)

    assert said.read_text() == "python3|/the action/bootstrap.py|--version|gpuinstall|sync|--venv|env|"
    assert path.read_text() == "/home/ann/.local/share/gpuinstall/bin\n"
    assert output.read_text() == "path=/home/ann/.local/share/gpuinstall/bin/gpuinstall\n"
