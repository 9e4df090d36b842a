"""Pattern matching takes limited time for adversarial texts and long logs."""

import base64
import random
import time

import pytest

from gpuinstall.catalog.failures.classify import classify
from gpuinstall.catalog.failures.table import Pattern
from gpuinstall.catalog.failures.transcript import Transcript
from tests.unit.catalog.failures.attacks import patterns, worst_seconds

SECONDS = 0.2  # for a text of that length; the slowest take 0.03 s, or 0.09 s on a machine a third as fast
LINE = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device"
)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.heavy)])
def test_failure_patterns_match_within_time_limit(every):
    worst = {
        pattern.says: worst_seconds(pattern, SECONDS)
        for pattern in [*patterns()][::every]
    }
    slow = {says: seconds for says, seconds in worst.items() if seconds > SECONDS}
    assert slow == {}


def test_error_is_found_in_a_large_log():
    noise = base64.encodebytes(random.Random(1).randbytes(6_000_000)).decode()
    texts = {
        "one line": noise.replace("\n", "") + LINE,
        "lines": f"{noise}{LINE}\n",
        "progress bar": "".join(f"{n:>7}/400000 [#####]\r" for n in range(400_000))
        + LINE,
    }
    wrong = {}
    for name, text in texts.items():
        start = time.process_time()
        passage = Transcript(text).find(Pattern("no kernel image is available"))
        seconds = time.process_time() - start
        if passage is None or "no kernel image" not in passage.quotation or seconds > 3:
            wrong[name] = passage, seconds
    assert wrong == {}


def test_huge_character_reference_is_ignored():
    assert classify("&#" + "9" * 10_000 + ";") == ()
