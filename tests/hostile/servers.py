"""Servers that mean ill: the stand-in index, with one kind of answer sent as no server should send it."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable
from dataclasses import replace

from tests.lab.host import Answer

JSON = "application/vnd.pypi.simple.v1+json"
LONG_S = 90.0
"""Longer than any test waits."""

PLACES = {
    "torch page": ("torch", r"/whl/cpu/torch/"),
    "torch metadata": ("r2", r"/whl/cpu/torch-.*\.metadata"),
    "torch wheel": ("r2", r"/whl/cpu/torch-.*\.whl"),
    "default page": ("default", r"/simple/filelock/"),
    "default metadata": ("default", r"/files/filelock-.*\.metadata"),
    "default wheel": ("default", r"/files/filelock-.*\.whl"),
}
"""The host that sends it, and its path."""


def _drip(body):
    for position in range(len(body)):
        yield body[position : position + 1]
        time.sleep(0.2)


def _stall(body):
    yield body[: len(body) // 2]
    time.sleep(LONG_S)


def _endless(body):
    yield body
    while True:
        yield b" " * (1 << 20)


def _short(body):
    yield body[: len(body) // 2]


def _dripping(answer):
    return replace(answer, pieces=_drip)


def _stalling(answer):
    return replace(answer, pieces=_stall)


def _endlessly(answer):
    return replace(
        answer, pieces=_endless, headers={**answer.headers, "Content-Length": str(10**15)}
    )


def _cut(answer):
    return replace(answer, pieces=_short, headers={**answer.headers, "Connection": "close"})


def _busy(answer):
    return replace(answer, status=503, headers={"Retry-After": "3600"}, pieces=None)


MANNERS: dict[str, Callable[[Answer], Answer]] = {
    "a byte now and then": _dripping,
    "half of it and then nothing": _stalling,
    "without end": _endlessly,
    "less than declared": _cut,
    "later, in an hour": _busy,
}


def _status(number, **headers):
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda answer: replace(answer, status=number, headers={**answer.headers, **said})


def _body(change):
    return lambda answer: replace(answer, body=change(answer.body))


def _headers(**headers):
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda answer: replace(answer, headers={**answer.headers, **said})


def _typed(kind, change=lambda body: body):
    return lambda answer: replace(answer, content_type=kind, body=change(answer.body))


def _late(answer):
    time.sleep(5)
    return answer


def _bomb(body):
    return gzip.compress(body + b" " * 200_000_000, 9)


def _links(*hrefs):
    lines = "".join(f'<a href="{href}">x</a>' for href in hrefs)
    return lambda _body: f"<html><body>{lines}</body></html>".encode()


def _absurd(body):
    return re.sub(rb"-(\d+\.\d+\.\d+)", b"-" + b"9" * 4000, body)


ODD: dict[str, Callable[[Answer], Answer]] = {
    **{f"with status {number}": _status(number) for number in (204, 403, 410, 429, 500)},
    "redirected to itself": _status(302, Location="."),
    "redirected to a file": _status(302, Location="file:///etc/passwd"),
    "after five seconds": _late,
    "empty": _body(lambda _: b""),
    "turned round": _body(lambda body: body[::-1]),
    "packed, and endless once unpacked": lambda answer: _headers(Content_Encoding="gzip")(
        _body(_bomb)(answer)
    ),
    "packed in an unknown way": _headers(Content_Encoding="sloth"),
    "with a length below nought": _headers(Content_Length="-1"),
    "as deep JSON": _typed(JSON, lambda _: b"[" * 100_000),
    "as JSON of other types": _typed(
        JSON, lambda _: json.dumps({"files": [7, None, {"url": 3}]}).encode()
    ),
    "with names that lead out": _body(
        _links("../../../etc/x-1-py3-none-any.whl", "..%2f..%2fx-1-py3-none-any.whl")
    ),
    "with absurd versions": _body(_absurd),
}
"""What a server may send that has one of its own kind of faults: a run uses it, does without it, or fails."""


def spoil(index, place, manner):
    """Have the index send what lies at ``place`` in that manner; return the host that does."""
    change = (MANNERS | ODD)[manner]
    name, path = PLACES[place]
    host = next(host for host in index.hosts if host.name == name)
    respond = host.respond

    def answer(asked, headers):
        usual = respond(asked, headers)
        return change(usual) if re.fullmatch(path, asked) and usual.status == 200 else usual

    host.respond = answer
    return host
