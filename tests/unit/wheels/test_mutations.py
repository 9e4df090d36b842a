"""Five hundred ways to serve a wheel wrongly: each ends in one clear error, or in the right row."""

import random
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gpuinstall.wheels.package import read_package
from gpuinstall.wheels.ranges import Ranges, WheelError
from gpuinstall.wheels.torch_wheel import read_torch
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.host import Answer
from tests.unit.wheels.made import (
    ROW,
    TORCH_WHEEL,
    Bytes,
    archive,
    fatbin,
    filler,
    over_http,
    server,
)

Mutation = Callable[[random.Random, bytes, bytes], bytes]

COMPANION = archive({"some/_C.so": filler(60_000) + fatbin("sm_75 sm_80 sm_90") * 5})


def _elsewhere(dice, part, whole):
    shift = dice.choice([-1, 1, dice.randrange(1, len(whole))])
    start = (whole.find(part) + shift) % len(whole)
    return (whole[start:] + whole)[: len(part)]


def _without(part, at):
    return part[:at] + part[at + 1 :]


def _doubled(part, at):
    return (part[:at] + part[max(0, at - 100) :])[: len(part)]


def _with_numbers(dice, part):
    """Put an extreme number at the place of some field of a zip's records, or anywhere."""
    signs = [
        at for sign in (b"PK\1\2", b"PK\3\4", b"PK\5\6") if (at := part.find(sign)) >= 0
    ]
    at = (
        dice.choice(signs) + dice.randrange(4, 46)
        if signs
        else dice.randrange(len(part))
    )
    number = dice.choice(
        [0, 1, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, dice.getrandbits(32)]
    )
    return (part[:at] + number.to_bytes(4, "little") + part[at + 4 :])[: len(part)]


MUTATIONS = {
    "cut": lambda dice, part, _: part[: dice.randrange(len(part))],
    "longer": lambda dice, part, _: part + dice.randbytes(dice.randrange(1, 100_000)),
    "nothing": lambda *_: b"",
    "shifted": _elsewhere,
    "zeros": lambda _dice, part, _whole: bytes(len(part)),
    "noise": lambda dice, part, _: dice.randbytes(len(part)),
    "dropped": lambda dice, part, _: _without(part, dice.randrange(len(part))).ljust(
        len(part), b"\0"
    ),
    "doubled": lambda dice, part, _: _doubled(part, dice.randrange(len(part))),
    "reversed": lambda _dice, part, _whole: part[::-1],
    "numbers": lambda dice, part, _: _with_numbers(dice, part),
}


@dataclass
class Mutated:
    """Serves one of the parts that are asked for changed; ``size`` may lie."""

    inner: Ranges
    whole: bytes
    mutation: Mutation
    dice: random.Random
    turn: int
    size: int

    def stream(self, start, end):
        self.turn -= 1
        part = b"".join(self.inner.stream(start, min(end, self.inner.size)))
        yield (
            self.mutation(self.dice, part, self.whole)
            if self.turn == 0 and part
            else part
        )


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


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutated_wheel_gives_no_wrong_row(name):
    outcomes = []
    tracemalloc.start()
    for seed in range(50):
        dice = random.Random(f"{name} {seed}")
        companion = seed % 5 == 4
        whole = COMPANION if companion else TORCH_WHEEL
        size = len(whole) + (
            dice.choice([-1, 1, -1000, 10**6, 10**15]) if seed % 10 == 0 else 0
        )
        started = time.process_time()
        turn = dice.randrange(1, 3 if companion else 4)
        outcomes.append(
            _outcome(
                Mutated(Bytes(whole), whole, MUTATIONS[name], dice, turn, size),
                companion,
            )
        )
        assert time.process_time() - started < 10
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20
    assert {outcome for outcome in outcomes if outcome} <= {ROW}
    assert None in outcomes


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
        body = (
            dice.choice(list(MUTATIONS.values()))(dice, body, TORCH_WHEEL)
            if len(body) > 1
            else b""
        )
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
