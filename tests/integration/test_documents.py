"""Tests that JSON documents of commands match their schemas."""

import json
import shutil

import pytest
from check_jsonschema import main
from click.testing import CliRunner
from tools.documents import (
    COMMANDS,
    DOCS,
    find_document_schemas,
    find_undescribed_keys,
    read,
    record_documents,
)


@pytest.mark.heavy
def test_printed_documents_match_their_schemas(tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build the fake NVIDIA libraries")
    schemas = {name: read(file) for name, file in find_document_schemas().items()}
    printed = dict(record_documents(tmp_path))

    assert schemas.keys() == COMMANDS.keys()
    found = {
        name: list(find_undescribed_keys(document, schemas[name]))
        for name, document in printed.items()
    }
    assert {name: keys for name, keys in found.items() if keys} == {}, (
        "say in docs/schemas what they mean"
    )
    errors = {
        name: _against_schema(name, document, tmp_path)
        for name, document in printed.items()
    }
    assert {name: text for name, text in errors.items() if text} == {}, (
        "python -m tools.documents; make docs"
    )


def _against_schema(name, document, folder):
    file = folder / "document.json"
    file.write_text(json.dumps(document), "utf-8")
    done = CliRunner().invoke(
        main, ["--schemafile", str(DOCS / find_document_schemas()[name]), str(file)]
    )
    return done.output if done.exit_code else ""
