"""The JSON documents: recorded examples in docs/documents, and what each key means in docs/schemas.

A schema is written by hand. An object whose keys are data, or that another schema describes, has
``additionalProperties``; of any other, every key that a command prints has its line. (A program that reads a document
has to ignore the keys that it does not know.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
EXAMPLE = re.compile(
    r"(?P<head><!-- (?P<part>data of )?(?P<file>documents/[\w-]+\.json) -->\n```json\n)(?:.*\n)*?```"
)
KEYS = re.compile(
    r"(?P<head><!-- keys of (?P<part>data in )?(?P<file>schemas/[\w-]+\.json)"
    r"(?:, without those of (?P<other>schemas/[\w-]+\.json))? -->\n\n)(?:\|.*\n)*"
)


def with_documents(page: str) -> str:
    """Return a page with the documents and the tables of keys that its comments name."""
    return KEYS.sub(table_of_keys, EXAMPLE.sub(example, page))


def example(block: re.Match[str]) -> str:
    """Return a block with the document, or with its data alone."""
    document = read(block["file"])
    shown = document["data"] if block["part"] else document
    return f"{block['head']}{json.dumps(shown, indent=1, ensure_ascii=False)}\n```"


def table_of_keys(table: re.Match[str]) -> str:
    """Return a table with the keys of the data that a schema describes, or with those of the envelope around it."""
    others = keys_of(table["other"]) if table["other"] else {}
    is_of_data = bool(table["part"])
    lines = [f"{table['head']}| key | meaning |", "|---|---|"]
    for key, meaning in keys_of(table["file"]).items():
        if key.startswith("data.") != is_of_data or others.get(key) == meaning:
            continue
        name = key.removeprefix("data.")
        lines.append(f"| `{name}` | {meaning} |")
    return "\n".join(lines) + "\n"


def keys_of(file: str) -> dict[str, str]:
    """Return what each key means by a schema: ``data.gpus[].name``."""
    return dict(_keys(read(file), ""))


def _keys(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name, value in schema.get("properties", {}).items():
        key = f"{path}.{name}".lstrip(".")
        yield key, value["description"]
        yield from _keys(value, key)
        yield from _keys(value.get("items", {}), f"{key}[]")


def unexplained(value: object, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the keys of a document that its schema does not have."""
    if isinstance(value, list):
        items = schema.get("items", {})
        for entry in value:
            yield from unexplained(entry, items, f"{path}[]")
    elif isinstance(value, dict) and not schema.get("additionalProperties"):
        properties = schema.get("properties", {})
        for name, inner in value.items():
            key = f"{path}.{name}".lstrip(".")
            if name in properties:
                yield from unexplained(inner, properties[name], key)
            else:
                yield key


def read(file: str) -> dict[str, Any]:
    """Read a document or a schema."""
    document: dict[str, Any] = json.loads((DOCS / file).read_text(encoding="utf-8"))
    return document


def schemas_of_documents() -> dict[str, str]:
    """Return the file of the schema for each recorded document: the one whose keys docs/documents.md shows next."""
    page = (DOCS / "documents.md").read_text(encoding="utf-8")
    schemas: dict[str, str] = {}
    schema = ""
    # From the end: the table of keys stands below its documents.
    for line in reversed(page.splitlines()):
        keys = re.match(r"<!-- keys of (?:data in )?(schemas/[\w-]+\.json)", line)
        document = re.match(r"<!-- (?:data of )?documents/([\w-]+)\.json", line)
        if keys:
            schema = keys[1]
        if document:
            schemas.setdefault(document[1], schema)
    return schemas
