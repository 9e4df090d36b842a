"""Servers that mean ill: every run ends, soon, says who was at fault, and leaves nothing in the folder."""

from itertools import product

import pytest

from tests.frozen import GPUINSTALL
from tests.hostile.servers import MANNERS, ODD, PLACES, spoil
from tests.lab.bounded import judged, run
from tests.lab.driver import NO_GPU
from tests.lab.index import StandInIndex
from tests.lab.new_torch import make_new_torch
from tests.lab.pace import within
from tests.lab.workshop import Workshop

LIMITS = {"GPUINSTALL_SILENCE": "1", "GPUINSTALL_FLOOR": "1000", "UV_HTTP_RETRIES": "0"}
"""Patience with servers that leaves an attack no time."""
BRIEFLY = {
    ("torch page", "a byte now and then"),
    ("torch wheel", "half of it and then nothing"),
    ("default wheel", "a byte now and then"),
    ("default wheel", "without end"),
}
"""Those of the usual run; the others take minutes."""
SERVED_ELSEWHERE = {("torch page", "later, in an hour")}
"""An index that is down is stood in for by the others."""
ENDED_LATE = set(
    product(
        ("torch metadata", "default page", "default metadata"),
        ("a byte now and then", "without end"),
    )
)
"""What uv alone reads is ended by uv's own limits, or by that of a whole run of uv (tests/unit/test_limits_of_programs.py)."""
CASES = [
    pytest.param(*case, marks=() if case in BRIEFLY else pytest.mark.heavy)
    for case in product(PLACES, MANNERS)
    if case not in SERVED_ELSEWHERE | ENDED_LATE
]


@pytest.mark.parametrize(("place", "manner"), CASES)
def test_a_server_that_means_ill_ends_nothing_but_the_run(stand_in, tmp_path, play, place, manner):
    play(NO_GPU)
    host = spoil(stand_in, place, manner)
    (tmp_path / "project").mkdir()
    workshop = Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment() | LIMITS)
    with within(20):
        done = workshop.run("install")
    assert done.status == 4, done.err
    assert any(asked.host == host.name for asked in stand_in.log)
    assert "Traceback" not in done.err
    assert workshop.entries() == set()


@pytest.mark.heavy
@pytest.mark.parametrize("manner", ODD)
def test_an_odd_answer_leaves_nothing_half_done(stand_in_folder, tmp_path, play, manner):
    play(NO_GPU)
    broken = []
    for number, place in enumerate(PLACES):
        folder = tmp_path / f"project {number}"
        folder.mkdir()
        with StandInIndex(stand_in_folder) as index:
            spoil(index, place, manner)
            here = Workshop(folder, tmp_path / f"caches {number}", index.environment() | LIMITS)
            ended = run([*GPUINSTALL, "install", "torch==2.14.1"], here.environment, folder, 60)
        left = here.entries() if ended.status else ""
        case = judged(place, ended, {0, 3, 4}, f"left {left}" if left else "")
        if case.fault:
            broken.append(case)

    assert broken == []


@pytest.mark.parametrize("manner", ["a byte now and then", "half of it and then nothing"])
def test_parts_of_a_wheel_that_come_too_slowly_end_by_the_same_limits(
    stand_in, tmp_path, play, manner
):
    play(NO_GPU)
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


def _slow_parts(respond, manner):
    def answer(path, headers):
        usual = respond(path, headers)
        return (
            manner(usual)
            if headers.get("range", "bytes=0-0") != "bytes=0-0" and path.endswith(".whl")
            else usual
        )

    return answer
