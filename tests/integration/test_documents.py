"""What commands print with ``--json`` is what docs/documents.md describes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from check_jsonschema import main
from click.testing import CliRunner
from tools.documents import DOCUMENTS, ENVELOPE, unexplained
from tools.record_documents import COMMANDS, recorded
from tools.schemas import schema_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.heavy
def test_every_key_that_a_command_prints_has_a_meaning_in_the_docs(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build the fake NVIDIA libraries")
    section = {example: document for document in DOCUMENTS for example in document.examples}
    printed = dict(recorded(tmp_path))

    assert set(section) == set(COMMANDS)
    assert all(set(document) <= set(ENVELOPE) for document in printed.values())
    found = {name: unexplained(section[name], document) for name, document in printed.items()}
    assert {name: keys for name, keys in found.items() if keys} == {}, "say in tools/documents.py what they mean"
    errors = {name: _against_schema(name, document, tmp_path) for name, document in printed.items()}
    assert {name: text for name, text in errors.items() if text} == {}, "python -m tools.record_documents; make docs"


def _against_schema(name: str, document: dict[str, Any], folder: Path) -> str:
    file = folder / "document.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    done = CliRunner().invoke(main, ["--schemafile", str(schema_of(name)), str(file)])
    return done.output if done.exit_code else ""
