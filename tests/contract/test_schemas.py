"""Tests of the JSON schemas of all documents."""

import json
from collections import defaultdict

import pytest
from check_jsonschema import main
from click.testing import CliRunner
from tools.documents import DOCS, find_document_schemas, find_undescribed_keys, read

SCHEMAS = find_document_schemas()


def check(*words):
    """Run check-jsonschema in this process, because it starts slowly."""
    return CliRunner().invoke(main, [str(word) for word in words])


def test_schemas_are_valid_json_schema():
    done = check("--check-metaschema", *sorted((DOCS / "schemas").glob("*.json")))
    assert done.exit_code == 0, done.output


def test_recorded_documents_match_their_json_schemas():
    files = defaultdict(list)
    for name, schema in SCHEMAS.items():
        files[schema].append(DOCS / "documents" / f"{name}.json")
    done = {
        schema: check("--schemafile", DOCS / schema, *paths)
        for schema, paths in files.items()
    }

    assert {path.stem for path in (DOCS / "documents").iterdir()} == SCHEMAS.keys()
    assert {
        schema: result.output for schema, result in done.items() if result.exit_code
    } == {}


def test_every_json_key_has_a_schema_description():
    found = {
        name: list(find_undescribed_keys(read(f"documents/{name}.json"), read(schema)))
        for name, schema in SCHEMAS.items()
    }

    assert {name: keys for name, keys in found.items() if keys} == {}


@pytest.mark.parametrize(
    "change",
    [
        {"exit_code": "0"},
        {"status": "fine"},
        {"errors": [{"code": 3}]},
        {"data": []},
    ],
)
def test_malformed_document_fails_schema_validation(tmp_path, change):
    file = tmp_path / "document.json"
    file.write_text(json.dumps(read("documents/plan.json") | change), "utf-8")

    assert check("--schemafile", DOCS / SCHEMAS["plan"], file).exit_code == 1


def test_every_event_is_documented(tmp_path):
    schema = DOCS / "schemas" / "events.json"
    file = tmp_path / "event.json"
    file.write_text(json.dumps({"event": "warning", "text": "…", "do": []}), "utf-8")
    assert check("--schemafile", schema, file).exit_code == 0
    file.write_text(json.dumps({"event": "warning"}), "utf-8")
    assert check("--schemafile", schema, file).exit_code == 1
    events = [
        line["properties"]["event"]["const"]
        for line in read("schemas/events.json")["anyOf"]
    ]
    page = (DOCS / "api.md").read_text("utf-8")
    assert [event for event in events if f'"{event}"' not in page] == []
