"""Text from outside, without logins and control characters."""

from gpuinstall.base.errors import UsageError
from gpuinstall.base.text import (
    redact,
    redact_document,
    remove_logins,
    sanitize,
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
    "→bob:secret@index.example: no kernel image": "→****@index.example: no kernel image",
}


def test_logins_in_urls_are_hidden():
    assert {text: redact(text) for text in ADDRESSES} == ADDRESSES
    for text, expected in ADDRESSES.items():
        assert sanitize(f"see {text}!") == f"see {expected}!"
        if "://" in text:
            assert remove_logins(text) == expected.replace("****@", "")


def test_logins_in_documents_are_hidden():
    document = {"seen": [list(ADDRESSES), {"name": "you@b.example"}], "count": 1}
    texts = [list(ADDRESSES.values()), {"name": "you@b.example"}]
    assert redact_document(document) == {"seen": texts, "count": 1}


def test_logins_in_errors_are_hidden():
    address = "https://ann:secret@a.example"
    error = UsageError(
        "odd", address, why=address, evidence=address, hint=f"curl {address}"
    )
    texts = [str(error), error.message, error.why, error.evidence, error.hint]
    assert texts == ["https://****@a.example"] * 4 + ["curl https://****@a.example"]
