"""Text from outside, as a person reads it."""

import json

from gpuinstall.base.errors import UsageError
from gpuinstall.base.text import (
    redacted,
    redacted_document,
    visible,
    without_logins,
)

ADDRESSES = {
    "https://ann:secret@a.example/x": "https://****@a.example/x",
    "https://u:p@secret@a.example/x": "https://****@a.example/x",
    "http://secret@b.example": "http://****@b.example",
    "git+ssh://git:secret@c.example/r": "git+ssh://****@c.example/r",
    'http://u:p"q@a.example': "http://****@a.example",
    "ssh://git:a@b@c.example:22/r": "ssh://****@c.example:22/r",
    "ssh://git@c.example:22/r": "ssh://git@c.example:22/r",
    "git+ssh://git@c.example/r": "git+ssh://git@c.example/r",
    "ssh://git@c.example/r and https://ann@c.example": "ssh://git@c.example/r and https://****@c.example",
    "file:///a@2/b": "file:///a@2/b",
    "C:/a@2/b;D:/c@3": "C:/a@2/b;D:/c@3",
    "/a/x.whl:/b@2/c": "/a/x.whl:/b@2/c",
    "https:/ann:secret@a.example/x": "https:/****@a.example/x",
    "ann:secret@index.example/simple": "****@index.example/simple",
    "ann:secret@localhost:8080": "****@localhost:8080",
    "you@c.example": "you@c.example",
    "git@c.example:owner/name": "git@c.example:owner/name",
    "x @ https://c.example": "x @ https://c.example",
    "python:3.12@sha256:00": "python:3.12@sha256:00",
}


def test_a_document_without_logins_is_still_json():
    text = "→bob:secret@index.example: no kernel image"

    document = json.loads(json.dumps(redacted_document({"seen": [text], "count": 1})))

    assert document == {"seen": ["→****@index.example: no kernel image"], "count": 1}


def test_no_login_of_an_address_is_shown():
    wrong = {
        text: redacted(text)
        for text, expected in ADDRESSES.items()
        if redacted(text) != expected
    }
    assert wrong == {}
    assert {text: without_logins(text) for text in ADDRESSES if "://" in text} == {
        text: expected.replace("****@", "")
        for text, expected in ADDRESSES.items()
        if "://" in text
    }
    assert [visible(f"see {text}!") for text in ADDRESSES] == [
        f"see {text}!" for text in ADDRESSES.values()
    ]


def test_a_document_without_logins_is_still_a_document():
    values = {
        "addresses": list(ADDRESSES),
        "nested": [["https://a.example"], {"name": "you@b.example"}],
    }
    document = json.loads(redacted(json.dumps(values)))
    assert document == {
        "addresses": list(ADDRESSES.values()),
        "nested": values["nested"],
    }


def test_an_error_holds_no_login():
    address = "https://ann:secret@a.example"
    error = UsageError(
        "odd", address, why=address, evidence=address, hint=f"curl {address}"
    )
    texts = [str(error), error.message, error.why, error.evidence, error.hint]
    assert texts == ["https://****@a.example"] * 4 + ["curl https://****@a.example"]
