"""The JSON Schema files: those of the documents' keys, and what commands really print is valid by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from check_jsonschema import main
from click.testing import CliRunner, Result
from tools.documents import DOCUMENTS, recorded
from tools.schemas import EVENTS, FOLDER, schema_of, schemas

from tests.lab.clone import ROOT

EXAMPLES = [example for document in DOCUMENTS for example in document.examples]


def check(*words: str | Path) -> Result:
    """Run check-jsonschema, in this process: it takes a second to start."""
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_files_are_what_the_documents_say() -> None:
    stale = [name for name, text in schemas().items() if (ROOT / name).read_text(encoding="utf-8") != text]

    assert stale == [], "run: make docs"
    assert {path.name for path in FOLDER.iterdir()} == {Path(name).name for name in schemas()}


def test_they_are_json_schema() -> None:
    done = check("--check-metaschema", *sorted(FOLDER.glob("*.json")))
    assert done.exit_code == 0, done.output


def test_every_recorded_document_is_valid_by_its_schema() -> None:
    wrong = {}
    for schema in {schema_of(example) for example in EXAMPLES}:
        files = [ROOT / "docs" / "documents" / f"{name}.json" for name in EXAMPLES if schema_of(name) == schema]
        if (done := check("--schemafile", schema, *files)).exit_code:
            wrong[schema.name] = done.output
    assert wrong == {}


@pytest.mark.parametrize("wrong", [{"exit_code": "0"}, {"status": "fine"}, {"errors": [{"code": 3}]}, {"data": []}])
def test_a_document_that_is_not_ours_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    file.write_text(json.dumps(recorded("plan") | wrong), encoding="utf-8")

    assert check("--schemafile", schema_of("plan"), file).exit_code == 1


def test_every_event_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    file.write_text(json.dumps({"event": "warning", "text": "…"}), encoding="utf-8")
    assert check("--schemafile", FOLDER / "events.json", file).exit_code == 0
    file.write_text(json.dumps({"event": "warning"}), encoding="utf-8")
    assert check("--schemafile", FOLDER / "events.json", file).exit_code == 1
    said = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert all(f'"{event}"' in said for event in EVENTS)
