"""No text keeps explain busy: each pattern on texts made from itself, and logs of any length."""

import base64
import random
import re
import time

import pytest

from gpuinstall.catalog.failures.classify import classify
from gpuinstall.catalog.failures.pattern import Pattern
from gpuinstall.catalog.failures.transcript import Transcript
from tests.unit.catalog.failures.attacks import patterns, worst_seconds

SECONDS = 0.2  # for a text of that length; the slowest take 0.03, or on a machine a third as fast 0.09
LINE = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device"
)
NOISE = base64.b64encode(random.Random(1).randbytes(6_000_000)).decode()
NOISY = re.sub(r"(.{70})", r"\1\n", NOISE)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.heavy)])
def test_no_pattern_is_slow_on_a_text_made_from_itself(every):
    worst = {
        pattern.says: worst_seconds(pattern, SECONDS)
        for pattern in [*patterns()][::every]
    }
    slow = {says: seconds for says, seconds in worst.items() if seconds > SECONDS}
    assert slow == {}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{NOISE}{LINE}", id="one line"),
        pytest.param(
            f"{NOISY}\n{LINE}\n",
            id="noise",
        ),
        pytest.param(
            "".join(f"step {n} loss 0.{n}\n" for n in range(400_000)) + LINE,
            id="training",
        ),
        pytest.param(
            "\r".join(f"{n:>7}/400000 [#####]" for n in range(400_000)) + f"\r{LINE}",
            id="progress bar",
        ),
    ],
)
def test_an_error_is_found_in_megabytes(text):
    start = time.process_time()
    passage = Transcript(text).find(Pattern("no kernel image is available"))
    assert passage is not None
    assert "no kernel image" in passage.quotation
    assert time.process_time() - start < 3


def test_a_number_without_end_is_no_character():
    assert classify("&#" + "9" * 10_000 + ";") == ()
