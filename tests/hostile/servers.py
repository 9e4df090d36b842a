"""Servers that mean ill: the stand-in index, with one kind of answer sent as no server should send it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tests.lab.host import Answer, Host
from tests.lab.index import StandInIndex

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


def _drip(body: bytes) -> Iterator[bytes]:
    for position in range(len(body)):
        yield body[position : position + 1]
        time.sleep(0.2)


def _stall(body: bytes) -> Iterator[bytes]:
    yield body[: len(body) // 2]
    time.sleep(LONG_S)


def _endless(body: bytes) -> Iterator[bytes]:
    yield body
    while True:
        yield b" " * (1 << 20)


def _short(body: bytes) -> Iterator[bytes]:
    yield body[: len(body) // 2]


def _dripping(answer: Answer) -> Answer:
    return replace(answer, pieces=_drip)


def _stalling(answer: Answer) -> Answer:
    return replace(answer, pieces=_stall)


def _endlessly(answer: Answer) -> Answer:
    return replace(
        answer, pieces=_endless, headers={**answer.headers, "Content-Length": str(10**15)}
    )


def _cut(answer: Answer) -> Answer:
    return replace(answer, pieces=_short, headers={**answer.headers, "Connection": "close"})


def _busy(answer: Answer) -> Answer:
    return replace(answer, status=503, headers={"Retry-After": "3600"}, pieces=None)


MANNERS: dict[str, Callable[[Answer], Answer]] = {
    "a byte now and then": _dripping,
    "half of it and then nothing": _stalling,
    "without end": _endlessly,
    "less than declared": _cut,
    "later, in an hour": _busy,
}


def spoil(
    index: StandInIndex,
    place: str,
    manner: str,
    manners: Mapping[str, Callable[[Answer], Answer]] = MANNERS,
) -> Host:
    """Have the index send what lies at ``place`` in that manner; return the host that does."""
    name, path = PLACES[place]
    host = next(host for host in index.hosts if host.name == name)
    respond = host.respond

    def answer(asked: str, headers: dict[str, str]) -> Answer:
        usual = respond(asked, headers)
        return (
            manners[manner](usual) if re.fullmatch(path, asked) and usual.status == 200 else usual
        )

    host.respond = answer
    return host
