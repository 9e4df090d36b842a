"""Five hundred damaged wheels: each is an error, or read correctly."""

import random
import time
import tracemalloc
from dataclasses import dataclass

import pytest

from gpuinstall.wheels.package import PackageReader
from gpuinstall.wheels.ranges import WheelError
from gpuinstall.wheels.torch_wheel import read_torch
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.unit.wheels.made import (
    ROW,
    TORCH_WHEEL,
    Bytes,
    archive,
    changed,
    fatbin,
    filler,
)

COMPANION = archive({"some/_C.so": filler(60_000) + fatbin("sm_75 sm_80 sm_90") * 5})


@dataclass
class Mutated:
    """A remote file with one damaged part and possibly a wrong ``size``."""

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
    """Return the architectures, or None for an error."""
    try:
        wheel = WheelReader(ranges)
        if not companion:
            return read_torch(wheel).architectures
        package = PackageReader(wheel, "some", may_have_code=True)
        facts = package.read_code(whole=False)
    except WheelError:
        return None
    return facts.codes[0].architectures if facts.codes else None


@pytest.mark.parametrize("companion", [False, True])
def test_damaged_wheel_is_rejected_or_read_correctly(companion):
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
