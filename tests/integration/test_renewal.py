"""Tests of the workflow that updates lock files, run as on GitHub."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from gpuinstall.base import process
from tests.frozen import GPUINSTALL
from tests.lab.clone import ROOT
from tests.lab.index import SimulatedIndex
from tests.lab.processes import succeed
from tests.lab.releases import LINUX, catalog_index

WORKFLOW = ROOT / "docs" / "recipes" / "github-renewal.yml"
PUSHED_TO = "https://x-access-token:secret@github.com/someone/project"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
GH = '#!/bin/sh\necho "$@" >> "$RUNNER_TEMP/gh"\n'


@dataclass(frozen=True)
class Runner:
    """A simulated GitHub runner with a clone and its origin."""

    folder: Path
    variables: dict[str, str]

    @property
    def clone(self):
        return self.folder / "clone"

    @property
    def temporary(self):
        return self.folder / "temp"

    def run(self, *words):
        done = succeed([*words], cwd=self.clone, env=self.variables, seconds=300)
        return done.out

    def run_job(self):
        """Run all scripts of the workflow."""
        job = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"]["renew"]
        scripts = [step["run"] for step in job["steps"] if "run" in step]
        assert len(scripts) == 3
        for script in scripts:
            self.run("bash", "-e", "-o", "pipefail", "-c", script)


@pytest.fixture
def index(tmp_path):
    wheels = catalog_index(
        tmp_path / "wheels", ["2.13.0"], platforms=[LINUX], pythons=[PYTHON]
    )
    with SimulatedIndex(wheels) as served:
        yield served


@pytest.fixture
def runner(index, tmp_path):
    """Create a project with a lock, and programs of the workflow."""
    home = tmp_path / "home"
    tool = home / ".local" / "share" / "gpuinstall" / "bin" / "gpuinstall"
    gh = tmp_path / "bin" / "gh"
    for program, text in (
        (tool, f'#!/bin/sh\nexec {" ".join(GPUINSTALL)} "$@"\n'),
        (gh, GH),
    ):
        program.parent.mkdir(parents=True)
        program.write_text(text, "utf-8")
        program.chmod(0o755)
    variables = {
        **index.environment(),
        "PATH": f"{gh.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "UV_CACHE_DIR": str(tmp_path / "cache" / "uv"),
        "RUNNER_TEMP": str(tmp_path / "temp"),
        "GITHUB_REPOSITORY": "someone/project",
        "GH_TOKEN": "secret",
    }
    runner = Runner(tmp_path, variables)
    runner.temporary.mkdir()
    runner.clone.mkdir()
    # bootstrap.py passes commands to the tool.
    handover = (
        f"import os, sys\nos.execv({str(tool)!r}, ['gpuinstall', *sys.argv[1:]])\n"
    )
    (runner.clone / "bootstrap.py").write_text(handover, "utf-8")
    bare = tmp_path / "origin.git"
    process.run(["git", "init", "-q", "--bare", bare])
    for words in (
        ("init", "-q", "--initial-branch", "main"),
        ("config", f"url.{bare}.insteadOf", PUSHED_TO),
    ):
        runner.run("git", *words)
    runner.run(tool, "lock", "torch", "--target", "cu126", "--python", PYTHON)
    runner.run("git", "add", ".")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    runner.run("git", *author, "commit", "-q", "-m", "Lock torch")
    return runner


@pytest.mark.heavy
def test_newer_torch_creates_a_pull_request(runner, index):
    catalog_index(index.folder, ["2.14.1"], platforms=[LINUX], pythons=[PYTHON])
    # A runner has empty caches.
    fresh = {
        "XDG_CACHE_HOME": str(runner.folder / "b"),
        "UV_CACHE_DIR": str(runner.folder / "uv"),
    }
    Runner(runner.folder, {**runner.variables, **fresh}).run_job()

    assert (
        runner.run("git", "--git-dir", "../origin.git", "branch")
        .strip()
        .startswith("renew-")
    )
    assert runner.run("git", "show", "--name-only", "--format=%s") == (
        "Lock the latest versions\n\npylock.cu126.toml\n"
    )
    (call,) = (runner.temporary / "gh").read_text().splitlines()
    assert call.startswith("pr create --head renew-torch-")
    changes = (runner.temporary / "changes.md").read_text()
    assert changes.startswith("### pylock.cu126.toml\n\n```text\n")
    assert (
        ' name = "torch"\n-version = "2.13.0+cu126"\n+version = "2.14.1+cu126"\n'
        in changes
    )


@pytest.mark.heavy
def test_unchanged_lock_creates_no_pull_request(runner):
    runner.run_job()

    assert not (runner.temporary / "gh").exists()
    assert runner.run("git", "status", "--porcelain") == ""
