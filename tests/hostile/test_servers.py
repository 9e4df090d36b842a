"""Servers that mean ill: every run ends, soon, says who was at fault, and leaves nothing in the folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product

import pytest

from tests.hostile.servers import MANNERS, PLACES, spoil
from tests.lab.driver import FakeDriver
from tests.lab.host import Answer
from tests.lab.new_torch import make_new_torch
from tests.lab.pace import within
from tests.lab.workshop import Workshop

Respond = Callable[[str, dict[str, str]], Answer]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the limit of uv's memory reads /proc"
)

BRIEFLY = {
    ("torch page", "a byte now and then"),
    ("torch wheel", "half of it and then nothing"),
    ("default page", "without end"),
    ("default wheel", "a byte now and then"),
    ("default wheel", "without end"),
}
"""Those of the usual run; the others take minutes."""
SERVED_ELSEWHERE = {("torch page", "later, in an hour")}
"""An index that is down is stood in for by the others."""
ENDED_LATE = {
    (place, "a byte now and then")
    for place in ("torch metadata", "default page", "default metadata")
}
"""What uv alone reads is ended by the limit of a whole run of uv, hours (tests/unit/test_limits_of_programs.py)."""
CASES = [
    pytest.param(*case, marks=() if case in BRIEFLY else pytest.mark.heavy)
    for case in product(PLACES, MANNERS)
    if case not in SERVED_ELSEWHERE | ENDED_LATE
]


@pytest.mark.parametrize(("place", "manner"), CASES)
def test_a_server_that_means_ill_ends_nothing_but_the_run(stand_in, tmp_path, play, place, manner):
    play(FakeDriver(nvml_missing=True, cu_missing=True))
    host = spoil(stand_in, place, manner)
    (tmp_path / "project").mkdir()
    limits = {"GPUINSTALL_SILENCE": "1", "GPUINSTALL_FLOOR": "1000", "UV_HTTP_RETRIES": "0"}
    workshop = Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment() | limits)
    with within(20):
        done = workshop.run("install")
    assert done.status == 4, done.err
    assert any(asked.host == host.name for asked in stand_in.log)
    assert "Traceback" not in done.err
    assert workshop.entries() == set()


@pytest.mark.parametrize("manner", ["a byte now and then", "half of it and then nothing"])
def test_parts_of_a_wheel_that_come_too_slowly_end_by_the_same_limits(
    stand_in, tmp_path, play, manner
):
    play(FakeDriver(nvml_missing=True, cu_missing=True))
    for host in stand_in.hosts:
        host.respond = _slow_parts(host.respond, MANNERS[manner])
    limits = {"GPUINSTALL_SILENCE": "1", "GPUINSTALL_FLOOR": "1000"}
    workshop = Workshop(tmp_path, tmp_path / "caches", stand_in.environment() | limits)
    make_new_torch(stand_in.folder, "cu132")
    with within(20):
        done = workshop.run("plan", "--live", "--gpu", "RTX 4090", "--driver", "615")
    assert done.status == 0, done.out + done.err
    assert "2.16.0+cu132 is on the index" in done.out
    assert any(asked.range for asked in stand_in.log)


def _slow_parts(respond: Respond, manner: Callable[[Answer], Answer]) -> Respond:
    def answer(path: str, headers: dict[str, str]) -> Answer:
        usual = respond(path, headers)
        return (
            manner(usual)
            if headers.get("range", "bytes=0-0") != "bytes=0-0" and path.endswith(".whl")
            else usual
        )

    return answer
