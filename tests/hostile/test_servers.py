"""Tests that malicious servers cause quick errors and no leftover files."""

import gzip
import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from tests.frozen import GPUINSTALL
from tests.lab.bounded import find_run_fault, run
from tests.lab.driver import NO_GPU
from tests.lab.host import Answer
from tests.lab.index import SimulatedIndex
from tests.lab.new_torch import make_new_torch
from tests.lab.pace import within
from tests.lab.workshop import Workshop

JSON = "application/vnd.pypi.simple.v1+json"
LONG_S = 90.0
"""A delay in seconds, longer than any test waits."""

PLACES = {
    "torch page": ("torch", r"/whl/cpu/torch/"),
    "torch metadata": ("r2", r"/whl/cpu/torch-.*\.metadata"),
    "torch wheel": ("r2", r"/whl/cpu/torch-.*\.whl"),
    "default page": ("default", r"/simple/filelock/"),
    "default metadata": ("default", r"/files/filelock-.*\.metadata"),
    "default wheel": ("default", r"/files/filelock-.*\.whl"),
}
"""The host that sends the response, and the URL path."""


def _stall(body):
    yield body[: len(body) // 2]
    time.sleep(LONG_S)


def _endless(body):
    yield body
    while True:
        yield b" " * (1 << 20)


def _short(body):
    yield body[: len(body) // 2]


def altered(change=None, headers=None, **fields):
    """Return a function that changes the body and headers of a response."""

    def alter(answer):
        if change:
            answer = replace(answer, body=change(answer.body))
        return replace(answer, headers={**answer.headers, **(headers or {})}, **fields)

    return alter


MANNERS: dict[str, Callable[[Answer], Answer]] = {
    "half of it and then nothing": altered(pieces=_stall),
    "without end": altered(headers={"Content-Length": str(10**15)}, pieces=_endless),
    "less than declared": altered(headers={"Connection": "close"}, pieces=_short),
    "later, in an hour": altered(headers={"Retry-After": "3600"}, status=503),
}


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
    **{
        f"with status {number}": altered(status=number)
        for number in (204, 403, 410, 429, 500)
    },
    "redirected to itself": altered(headers={"Location": "."}, status=302),
    "redirected to a file": altered(
        headers={"Location": "file:///etc/passwd"}, status=302
    ),
    "redirected to bytes": altered(headers={"Location": "/\x9b"}, status=302),
    "after five seconds": _late,
    "empty": altered(lambda _: b""),
    "turned round": altered(lambda body: body[::-1]),
    "packed, and endless once unpacked": altered(
        _bomb, headers={"Content-Encoding": "gzip"}
    ),
    "packed in an unknown way": altered(headers={"Content-Encoding": "sloth"}),
    "with a length below nought": altered(headers={"Content-Length": "-1"}),
    "as deep JSON": altered(lambda _: b"[" * 100_000, content_type=JSON),
    "as JSON of other types": altered(
        lambda _: json.dumps({"files": [7, None, {"url": 3}]}).encode(),
        content_type=JSON,
    ),
    "with names that lead out": altered(
        _links("../../../etc/x-1-py3-none-any.whl", "..%2f..%2fx-1-py3-none-any.whl")
    ),
    "with absurd versions": altered(_absurd),
}
"""Server faults, and whether a run then succeeds or fails."""


def spoil(index, place, manner):
    """Make the index respond with a fault, and return the affected host."""
    change = (MANNERS | ODD)[manner]
    name, path = PLACES[place]
    host = next(host for host in index.hosts if host.name == name)
    respond = host.respond

    def answer(asked, headers):
        usual = respond(asked, headers)
        return (
            change(usual)
            if re.fullmatch(path, asked) and usual.status == 200
            else usual
        )

    host.respond = answer
    return host


LIMITS = {"GPUINSTALL_SILENCE": "1", "UV_HTTP_RETRIES": "0"}
"""Settings with which slow responses time out quickly."""
BRIEFLY = {
    ("torch wheel", "half of it and then nothing"),
    ("default wheel", "without end"),
}
"""Faults that ``make test`` includes; other faults take minutes."""
SERVED_ELSEWHERE = {("torch page", "later, in an hour")}
"""Faults for which another host serves the page."""
ENDED_LATE = set(
    product(
        ("torch metadata", "default page", "default metadata"),
        ("without end",),
    )
)
"""Faults that end only at a time limit of uv."""
CASES = [
    pytest.param(*case, marks=() if case in BRIEFLY else pytest.mark.heavy)
    for case in product(PLACES, MANNERS)
    if case not in SERVED_ELSEWHERE | ENDED_LATE
]


@pytest.mark.parametrize(("place", "manner"), CASES)
def test_slow_or_unbounded_response_fails_the_command(stand_in, here, place, manner):
    host = spoil(stand_in, place, manner)
    with within(20):
        done = here.having(**LIMITS).run("install")
    assert done.status == 4, done.err
    assert any(asked.host == host.name for asked in stand_in.log)
    assert "Traceback" not in done.err
    assert here.entries() == set()


@pytest.mark.heavy
def test_unbounded_page_is_aborted_within_memory_limit(here, stand_in):
    spoil(stand_in, "default page", "without end")

    done = here.run("lock", "--target", "cpu", "torch")

    assert done.status == 4, done.err
    assert "was stopped: used more than" in done.err
    assert "GB of memory" in done.err


@pytest.mark.heavy
@pytest.mark.parametrize("manner", ODD)
def test_malformed_response_leaves_no_partial_installation(
    stand_in_folder, tmp_path, play, manner
):
    play(NO_GPU)
    broken = []
    for number, place in enumerate(PLACES):
        folder = tmp_path / f"project {number}"
        folder.mkdir()
        with SimulatedIndex(stand_in_folder) as index:
            spoil(index, place, manner)
            here = Workshop(
                folder, tmp_path / f"caches {number}", index.environment() | LIMITS
            )
            ended = run(
                [*GPUINSTALL, "install", "torch==2.14.1"], here.environment, folder, 60
            )
        left = here.entries() if ended.status else ""
        # A configured torch index without torch is a configuration error.
        allowed = {0, 3, 4} | ({2} if place == "torch page" else set())
        if fault := find_run_fault(ended, allowed, f"left {left}" if left else ""):
            broken.append((place, fault))

    assert broken == []


@pytest.mark.heavy
def test_stalled_wheel_range_request_is_aborted(stand_in, here):
    for host in stand_in.hosts:
        host.respond = _stall_parts(host.respond)
    make_new_torch(stand_in.folder, "cu132")
    hurried = here.having(GPUINSTALL_SILENCE="1")
    with within(20):
        done = hurried.run("lock", "--dry-run", "--gpu", "RTX 4090", "--driver", "615")
    assert done.status == 0, done.out + done.err
    assert "torch 2.15.0+cu132" in done.err
    assert any(asked.range for asked in stand_in.log)


def _stall_parts(respond):
    stall = MANNERS["half of it and then nothing"]

    def answer(path, headers):
        usual = respond(path, headers)
        return (
            stall(usual)
            if headers.get("range", "bytes=0-0") != "bytes=0-0"
            and path.endswith(".whl")
            else usual
        )

    return answer
