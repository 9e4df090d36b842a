"""The workflows: valid by GitHub's schema, clean by a security linter, and nothing known to them alone."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

from tests.contract.test_powershell import parsed

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROGRAMS = Path(sys.executable).parent


def jobs(path):
    document = yaml.safe_load(path.read_text("utf-8"))
    return document["jobs"]


def run(*words):
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False
    )


def test_they_are_valid_by_the_schema():
    for schema, files in (
        ("github-workflows", WORKFLOWS),
        ("github-actions", [ROOT / "action.yml"]),
    ):
        done = run(
            PROGRAMS / "check-jsonschema",
            "--builtin-schema",
            f"vendor.{schema}",
            *files,
        )
        assert done.returncode == 0, done.stdout


def test_the_security_linter_has_no_finding():
    done = run(PROGRAMS / "zizmor", "--offline", "--no-progress", "--quiet", *WORKFLOWS)

    assert done.returncode == 0, done.stdout


def test_each_step_of_the_tests_is_a_target_of_make():
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


def test_what_runs_on_windows_is_powershell():
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


def test_the_script_for_windows_has_the_targets_of_make_and_is_powershell():
    script = (ROOT / "make.ps1").read_text("utf-8")
    recipe = re.search(
        r"^TESTS := \$\(DEV\) (.+)$",
        (ROOT / "Makefile").read_text("utf-8"),
        re.MULTILINE,
    )

    assert not parsed(script).root_node.has_error
    assert recipe is not None
    assert all(f"'{word}'" in script for word in recipe[1].split())
