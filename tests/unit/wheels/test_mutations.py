"""Five hundred ways to serve a wheel wrongly: each ends in one clear error, or in the right row."""

import random
import time
import tracemalloc
from dataclasses import dataclass

import pytest

from gpuinstall.wheels.package import read_package
from gpuinstall.wheels.ranges import WheelError
from gpuinstall.wheels.torch_wheel import read_torch
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.host import Answer
from tests.unit.wheels.made import (
    ROW,
    TORCH_WHEEL,
    Bytes,
    archive,
    changed,
    fatbin,
    filler,
    over_http,
    server,
)

COMPANION = archive({"some/_C.so": filler(60_000) + fatbin("sm_75 sm_80 sm_90") * 5})


@dataclass
class Mutated:
    """Serves one of the parts that are asked for changed; ``size`` may lie."""

    inner: Bytes
    dice: random.Random
    turn: int
    size: int

    def stream(self, start, end):
        self.turn -= 1
        part = b"".join(self.inner.stream(start, min(end, self.inner.size)))
        if self.turn == 0 and part:
            part = changed(self.dice, part)
        yield part


def _outcome(ranges, companion=False):
    """The row, None where there is an error."""
    try:
        wheel = WheelReader(ranges)
        if not companion:
            return read_torch(wheel).architectures
        facts = read_package(wheel, "some", may_have_code=True)
    except WheelError:
        return None
    return facts.codes[0].architectures if facts.codes else None


@pytest.mark.parametrize("companion", [False, True])
def test_a_mutated_wheel_gives_no_wrong_row(companion):
    whole = COMPANION if companion else TORCH_WHEEL
    outcomes = set()
    tracemalloc.start()
    for seed in range(250):
        dice = random.Random(seed)
        lie = dice.choice([-1, 1, -1000, 10**6, 10**15]) if seed % 10 == 0 else 0
        turn = dice.randrange(1, 3 if companion else 4)
        ranges = Mutated(Bytes(whole), dice, turn, len(whole) + lie)
        started = time.process_time()
        outcomes.add(_outcome(ranges, companion))
        assert time.process_time() - started < 10
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20
    assert outcomes == {ROW, None}


def _lying(dice, headers):
    """A 206 that is wrong in one respect or none."""
    first, last = (
        int(number) for number in headers["range"].removeprefix("bytes=").split("-")
    )
    real = (first, last, len(TORCH_WHEEL))
    said = [
        number + (dice.choice([1, -1, 5000]) if dice.random() < 0.03 else 0)
        for number in real
    ]
    body = TORCH_WHEEL[first : last + 1]
    span = {"Content-Range": "bytes {}-{}/{}".format(*said)}
    status = 206 if dice.random() < 0.9 else dice.choice([200, 204, 302, 416, 500])
    if dice.random() < 0.1:
        body = changed(dice, body)
    return Answer(
        status,
        body,
        headers=span
        | ({"Location": "https://other.example/"} if status == 302 else {}),
    )


def _outcome_over_http(url):
    try:
        with over_http(url) as ranges:
            return _outcome(ranges)
    except WheelError:
        return None


def test_a_server_that_lies_now_and_then_gives_no_wrong_row():
    dice = random.Random(13)
    with server(lambda _path, headers: _lying(dice, headers)) as host:
        outcomes = [_outcome_over_http(host.url) for _ in range(100)]
    assert set(outcomes) <= {ROW, None}
    assert {ROW, None} <= set(outcomes)
