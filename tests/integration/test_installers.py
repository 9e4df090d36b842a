"""Tests of the programs in docs/api.md in other languages."""

import json
import re
import shutil

import pytest
from tools.documents import find_document_schemas, read

from gpuinstall.base import process
from tests.contract.test_powershell import nodes, parsed
from tests.frozen import GPUINSTALL
from tests.lab.clone import ROOT
from tests.lab.driver import RTX_4090, RTX_5090, FakeDriver
from tests.lab.processes import succeed

PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")
needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="Node is not installed"
)


def program(language):
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


def node_finds(*pairs):
    """Return the faults that a Node program finds in documents."""
    orders = [
        {"schema": read(schema), "document": document} for schema, document in pairs
    ]
    done = succeed(
        ["node", ROOT / "tests" / "lab" / "validate.mjs"], text=json.dumps(orders)
    )
    return json.loads(done.out)


@pytest.mark.heavy
@needs_node
def test_node_installer_plans_and_installs_torch(workshop, play):
    folder = workshop.folder
    (folder / "installer.mjs").write_text(
        program("js").replace(
            '["python3", "bootstrap.py"]',
            json.dumps([str(word) for word in GPUINSTALL]),
        )
    )
    words = ["node", "installer.mjs", "torch==2.14.1"]

    play(FakeDriver(RTX_5090.gpus, driver="535.183.01", cuda=12020))
    refused = process.run(words, env=workshop.environment, cwd=folder)
    assert refused.status in {3, 8}
    assert "RTX 5090" in refused.err
    play(RTX_4090)
    done = succeed(words, env=workshop.environment, cwd=folder)
    said = done.out.splitlines()
    assert said[0] == "This machine gets PyTorch 2.14.1 (cu126)."
    assert said[-1] == f"Ready: {folder / '.venv'}"
    assert any(line.startswith("Verified: ") for line in said)
    assert workshop.python("import torch; print(torch.__version__)") == "2.14.1+cu126"

    lines = workshop.run(
        "install", "torch==2.14.1", "cowsay", "--json-events"
    ).out.splitlines()
    events = [json.loads(line) for line in lines]
    assert {event["event"] for event in events} >= {"step", "progress", "result"}
    lines_of_events = [("schemas/events.json", event) for event in events]
    assert node_finds(*lines_of_events, ("schemas/installation.json", events[-1])) == []


@needs_node
def test_node_validates_recorded_documents():
    documents = [
        (schema, read(f"documents/{name}.json"))
        for name, schema in find_document_schemas().items()
    ]
    assert node_finds(*documents) == []
    wrong = read("documents/plan.json") | {"exit_code": "0", "data": []}
    assert node_finds(("schemas/plan.json", wrong)) == [
        "gpuinstall: Plan.exit_code is string, not number",
        "gpuinstall: Plan.data is array, not object",
    ]


def test_powershell_program_parses():
    tree = parsed(program("powershell"))
    assert not tree.root_node.has_error
    assert len(nodes(tree, "function_statement")) == 2
