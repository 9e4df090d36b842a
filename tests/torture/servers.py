"""Forty kinds of hostile server, for a page, metadata and a file, on the index of torch and on the default index."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from tests.hostile.servers import MANNERS as SLOW
from tests.hostile.servers import PLACES, spoil
from tests.lab.host import Answer
from tests.torture.bounded import Case, judged
from tests.torture.place import Place, gpuinstall

Manner = Callable[[Answer], Answer]

SECONDS = 60.0
ALLOWED = {0, 3, 4}
"""A server may serve, lack what is asked for, or fail."""


def servers(place: Place, count: int) -> Iterator[Case]:
    """Each manner at each place; whatever came of it, nothing that is half done is left in the folder."""
    for name in islice(MANNERS, count):
        for where in PLACES:
            with place.served() as (index, here):
                spoil(index, where, name, MANNERS)
                ended = gpuinstall(here, "install", "torch==2.14.1", seconds=SECONDS)
                left = here.entries() if ended.status else set()
                yield judged(
                    f"{where} {name}", ended, ALLOWED, f"left {sorted(left)}" if left else ""
                )


def _status(number: int, **headers: str) -> Manner:
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda answer: replace(answer, status=number, headers={**answer.headers, **said})


def _body(change: Callable[[bytes], bytes]) -> Manner:
    return lambda answer: replace(answer, body=change(answer.body))


def _headers(**headers: str) -> Manner:
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda answer: replace(answer, headers={**answer.headers, **said})


def _typed(kind: str, change: Callable[[bytes], bytes] = lambda body: body) -> Manner:
    return lambda answer: replace(answer, content_type=kind, body=change(answer.body))


def _late(answer: Answer) -> Answer:
    time.sleep(5)
    return answer


def _bomb(body: bytes) -> bytes:
    return gzip.compress(body + b" " * 200_000_000, 9)


def _links(*hrefs: str) -> Callable[[bytes], bytes]:
    lines = "".join(f'<a href="{href}">x</a>' for href in hrefs)
    return lambda _body: f"<html><body>{lines}</body></html>".encode()


def _absurd(body: bytes) -> bytes:
    return re.sub(rb"-(\d+\.\d+\.\d+)", b"-" + b"9" * 4000, body)


JSON = "application/vnd.pypi.simple.v1+json"
MANNERS: dict[str, Manner] = {
    **SLOW,
    **{
        f"with status {number}": _status(number)
        for number in (204, 206, 400, 401, 402, 403, 404, 410, 416, 418)
    },
    **{f"with status {number}": _status(number) for number in (429, 451, 500, 502, 503, 504, 599)},
    "redirected to itself": _status(302, Location="."),
    "redirected to a file": _status(302, Location="file:///etc/passwd"),
    "redirected to nobody": _status(302, Location="http://127.0.0.1:9/"),
    "redirected without an address": _status(301),
    "after five seconds": _late,
    "empty": _body(lambda _: b""),
    "as noughts": _body(lambda body: b"\0" * len(body)),
    "turned round": _body(lambda body: body[::-1]),
    "twice": _body(lambda body: body * 2),
    "as ten megabytes more": _body(lambda body: body + b"\n" * 10_000_000),
    "packed, and endless once unpacked": lambda answer: _headers(Content_Encoding="gzip")(
        _body(_bomb)(answer)
    ),
    "said to be packed": _headers(Content_Encoding="gzip"),
    "packed in an unknown way": _headers(Content_Encoding="sloth"),
    "with no length": _headers(Content_Length=""),
    "with a length below nought": _headers(Content_Length="-1"),
    "with a header of a megabyte": _headers(X_Long="x" * 1_000_000),
    "as JSON that is none": _typed(JSON),
    "as deep JSON": _typed(JSON, lambda _: b"[" * 100_000),
    "as JSON of other types": _typed(
        JSON, lambda _: json.dumps({"files": [7, None, {"url": 3}]}).encode()
    ),
    "with names that lead out": _body(
        _links("../../../etc/x-1-py3-none-any.whl", "..%2f..%2fx-1-py3-none-any.whl")
    ),
    "with addresses of files": _body(_links("file:///etc/torch-9-py3-none-any.whl")),
    "with absurd versions": _body(_absurd),
}
