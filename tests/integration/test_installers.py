"""docs/installers.md: its programs in other languages, run or read by their own tools, and the schemas read by Node."""

import json
import os
import re
import shutil

import pytest
from tools.documents import read, schemas_of_documents

from gpuinstall.base import process
from tests.contract.test_powershell import nodes, parsed
from tests.frozen import GPUINSTALL
from tests.integration.test_install_lab import RTX_4090
from tests.integration.test_run_lab import RTX_5090
from tests.lab.clone import ROOT
from tests.lab.driver import FakeDriver
from tests.lab.own_home import USER_HOME
from tests.lab.workshop import Workshop

PAGE = (ROOT / "docs" / "installers.md").read_text(encoding="utf-8")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no Node here")
SERDE = """
pub enum Value { Null }
impl Value {
    pub fn as_str(&self) -> Option<&str> { None }
    pub fn as_i64(&self) -> Option<i64> { None }
}
impl<T> std::ops::Index<T> for Value { type Output = Value; fn index(&self, _: T) -> &Value { self } }
impl std::fmt::Display for Value {
    fn fmt(&self, _: &mut std::fmt::Formatter) -> std::fmt::Result { Ok(()) }
}
pub fn from_str(_: &str) -> Result<Value, std::fmt::Error> { Ok(Value::Null) }
"""
"""As much of serde_json as the example uses, for its types."""


def program(language):
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


def node_finds(*pairs):
    """What a Node program finds wrong in documents, each by its schema."""
    orders = [{"schema": read(schema), "document": document} for schema, document in pairs]
    done = process.run(["node", ROOT / "tests" / "lab" / "validate.mjs"], text=json.dumps(orders))
    assert done.ok, done.err
    return json.loads(done.out)


@pytest.mark.heavy
@needs_node
def test_a_node_program_plans_and_installs(stand_in, tmp_path, play):
    folder = tmp_path / "project"
    folder.mkdir()
    workshop = Workshop(folder, tmp_path / "caches", stand_in.environment())
    (folder / "installer.mjs").write_text(
        program("js").replace(
            '["python3", "bootstrap.py"]', json.dumps([str(word) for word in GPUINSTALL])
        )
    )
    words = ["node", "installer.mjs", "torch==2.14.1"]

    play(FakeDriver(RTX_5090.gpus, driver="535.183.01", cuda=12020))
    refused = process.run(words, env=workshop.environment, cwd=folder)
    assert refused.status in {3, 8}
    assert "RTX 5090" in refused.err
    play(RTX_4090)
    done = process.run(words, env=workshop.environment, cwd=folder)
    assert done.status == 0, done.err
    said = done.out.splitlines()
    assert said[0] == "This machine gets PyTorch 2.14.1 (cu126)."
    assert said[-1] == f"Ready: {folder / '.venv'}"
    assert any(line.startswith("Verified: ") for line in said)
    assert workshop.python("import torch; print(torch.__version__)") == "2.14.1+cu126"

    lines = workshop.run("install", "torch==2.14.1", "cowsay", "--json-events").out.splitlines()
    events = [json.loads(line) for line in lines]
    assert {event["event"] for event in events} >= {"step", "progress", "result"}
    lines_of_events = [("schemas/events.json", event) for event in events]
    assert node_finds(*lines_of_events, ("schemas/installation.json", events[-1])) == []


@needs_node
def test_node_finds_every_recorded_document_valid_and_a_wrong_one_not():
    documents = [
        (schema, read(f"documents/{name}.json")) for name, schema in schemas_of_documents().items()
    ]
    assert node_finds(*documents) == []
    wrong = read("documents/plan.json") | {"exit_code": "0", "data": []}
    assert node_finds(("schemas/plan.json", wrong)) == [
        "gpuinstall: Plan.exit_code is string, not number",
        "gpuinstall: Plan.data is array, not object",
    ]


def test_the_powershell_program_is_powershell():
    tree = parsed(program("powershell"))
    assert not tree.root_node.has_error
    assert len(nodes(tree, "function_statement")) == 2


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("rustc") is None, reason="no Rust here")
def test_the_rust_program_compiles(tmp_path):
    (tmp_path / "serde_json.rs").write_text(SERDE)
    (tmp_path / "main.rs").write_text(program("rust"))
    compiler = ["rustc", "--edition", "2021", "--emit", "metadata", "-D", "warnings"]
    for words in (
        ["--crate-type", "rlib", "serde_json.rs"],
        ["main.rs", "--extern", "serde_json=libserde_json.rmeta"],
    ):
        # rustup finds the toolchain under the user's own home.
        done = process.run(
            [*compiler, *words],
            env=os.environ | {"HOME": str(USER_HOME)},
            cwd=tmp_path,
            seconds=120,
        )
        assert done.ok, done.err
