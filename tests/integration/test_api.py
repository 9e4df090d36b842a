"""Tests of the Python API and of JSON events."""

import json
import re
import sys

import pytest

from gpuinstall.base import process
from tests.lab.clone import ROOT
from tests.lab.driver import RTX_4090

# The child's PYTHONPATH omits the folder in which the tests run.
FROZEN = f"import sys\nsys.path.append({str(ROOT)!r})\nfrom tests.frozen import freeze\nfreeze()\n"
EACH = """
import subprocess, sys
from gpuinstall.api import Request, install, install_into, lock, machine_from_options, verify
from gpuinstall.base.errors import UsageError, VerificationError
made = install("env")
assert made.to_dict()["environment"]["torch"] == "2.14.1+cu126"
assert verify(made.venv).status == verify(made.python).status == "passed"
named = install("named", Request(("torch",), python=sys.executable))
assert named.python.samefile(sys._base_executable)
[one, two] = lock("locks", Request(("torch",)), targets=["cu126", "cpu"])
assert (one.path.name, one.status, two.path.name) == ("pylock.cu126.toml", "written", "pylock.cpu.toml")
assert lock("locks", Request(("torch",)), targets=["cu126", "cpu"])[0].status == "unchanged"
[other] = lock("other", machine=machine_from_options(("GTX 1080",), driver="580.95.05"))
assert other.path.name == "pylock.cu126.toml"
try:
    install("locks")
except UsageError as error:
    assert error.code == "not-ours"
subprocess.run([sys.executable, "-m", "venv", "--without-pip", "theirs"], check=True)
assert install_into("theirs/bin/python", Request(("torch",))).verdict["status"] == "passed"
"""


@pytest.fixture
def workshop(workshop, play):
    play(RTX_4090)
    return workshop


def run(workshop, code):
    variables = {**workshop.environment, "PYTHONPATH": str(ROOT)}
    return process.run(
        [sys.executable, "-W", "error", "-c", FROZEN + code],
        env=variables,
        cwd=workshop.folder,
    )


@pytest.mark.heavy
def test_documented_installer_installs_and_starts_an_application(
    workshop,
):
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    example = re.findall(r"```python\n(.+?)```", text, re.DOTALL)[0]
    done = run(workshop, example)
    assert done.status == 0, done.out + done.err
    assert done.out.endswith("the application runs on torch 2.14.1+cu126\n")
    assert re.search(r"Download [\d,]+ of [\d,]+ bytes", done.out)
    assert len(example.splitlines()) < 40


@pytest.mark.heavy
def test_documented_api_calls_succeed(workshop):
    for name in ("locks", "other"):
        (workshop.folder / name).mkdir()
    done = run(workshop, EACH)
    assert done.status == 0, done.out + done.err
    assert done.out == ""


def test_event_stream_ends_with_result_document(workshop):
    done = workshop.run("install", "--json-events", "-v")
    assert (done.status, done.err) == (0, "")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert {event["event"] for event in events} >= {
        "step",
        "wait",
        "progress",
        "command",
        "result",
    }
    result = events[-1]
    assert (result["event"], result["status"], result["data"]["verdict"]["status"]) == (
        "result",
        "success",
        "passed",
    )
    loads = [
        event
        for event in events
        if event["event"] == "progress" and event["label"] == "Download"
    ]
    assert loads[-1]["done"] == loads[-1]["size"] > 0
    refused = workshop.run("install", "--json-events", "--backend", "cu999")
    assert json.loads(refused.out.splitlines()[-1])["exit_code"] == refused.status == 3
    malformed = workshop.run("install", "--json-events", "--frobnicate")
    assert json.loads(malformed.out)["errors"][0]["code"] == "usage"
