"""The JSON documents as JSON Schema, docs/schemas: the same keys and meanings as docs/documents.md.

What a value may be comes from the recorded documents; it may be null where its meaning says so. A program may find keys
that no schema has: new ones may come at any time.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.documents import DOCUMENTS, ENVELOPE, OPEN, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tools.documents import Document

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_KINDS = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}
EVENTS: dict[str, dict[str, str | list[str]]] = {
    "step": {"label": "string", "text": "string", "seconds": ["number", "null"]},
    "wait": {"text": "string"},
    "warning": {"text": "string"},
    "progress": {"label": "string", "unit": "string", "done": "number", "size": ["number", "null"], "parts": "array"},
    "command": {"argv": "array"},
    "result": {"gpuinstall": "number", "status": "string", "exit_code": "number", "errors": "array"},
}
"""The lines of ``--json-events`` and what each has."""


def schemas() -> dict[str, str]:
    """Write every schema, by the path of its file."""
    made = {_slug(document): _schema(document) for document in DOCUMENTS} | {"events": _events()}
    return {f"docs/schemas/{name}.json": json.dumps(schema, indent=1) + "\n" for name, schema in made.items()}


def schema_of(example: str) -> Path:
    """The file of the schema for a recorded document."""
    return FOLDER / f"{next(_slug(document) for document in DOCUMENTS if example in document.examples)}.json"


def _slug(document: Document) -> str:
    return re.sub(r"[^a-z0-9]+", "-", document.title.lower()).strip("-")


def _schema(document: Document) -> dict[str, Any]:
    printed = [recorded(name) for name in document.examples]
    envelope = _object(ENVELOPE, "", printed)
    envelope["properties"]["data"] = _object(document.every_key, "", [one["data"] for one in printed])
    envelope["properties"]["status"] = {"enum": ["success", "partial", "error"], "description": ENVELOPE["status"]}
    envelope["required"] = sorted(ENVELOPE.keys() - {"data"} - {key for key in ENVELOPE if "[" in key})
    return {"$schema": DIALECT, "title": f"gpuinstall: {document.title}", **envelope}


def _events() -> dict[str, Any]:
    lines = [
        {
            "properties": {"event": {"const": event}, **{key: {"type": kind} for key, kind in keys.items()}},
            "required": ["event", *keys],
        }
        for event, keys in EVENTS.items()
    ]
    return {"$schema": DIALECT, "title": "gpuinstall: a line of --json-events", "type": "object", "anyOf": lines}


def _object(keys: Mapping[str, str], path: str, values: list[Any]) -> dict[str, Any]:
    """Describe an object at ``path``, by its keys and by what it was in the documents."""
    start = f"{path}." if path else ""
    names = {key.removeprefix(start) for key in keys if key.startswith(start)}
    direct = sorted(name for name in names if not re.search(r"[.\[]", name))
    return {"type": "object", "properties": {name: _value(keys, start + name, name, values) for name in direct}}


def _value(keys: Mapping[str, str], path: str, name: str, parents: list[Any]) -> dict[str, Any]:
    """Describe the value at ``path``: of what kinds it was, and what is inside of it."""
    values = [parent[name] for parent in parents if isinstance(parent, dict) and name in parent]
    kinds = {kind for value in values for kind in _kinds(value)} | ({"null"} if "null" in keys[path] else set())
    described: dict[str, Any] = {"description": keys[path]}
    if kinds - {"null"}:
        described["type"] = sorted(kinds)
    if path in OPEN or f"{path}[]" in OPEN:
        return described
    if any(key.startswith(f"{path}.") for key in keys):
        described |= {"properties": _object(keys, path, values)["properties"]}
    if any(key.startswith(f"{path}[].") for key in keys):
        entries = [entry for value in values if isinstance(value, list) for entry in value]
        described |= {"items": _object(keys, f"{path}[]", entries)}
    return described


def _kinds(value: Any) -> Iterator[str]:
    yield "object" if isinstance(value, dict) else "array" if isinstance(value, list) else _KINDS[type(value)]
