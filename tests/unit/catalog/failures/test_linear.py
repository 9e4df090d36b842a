"""No text keeps explain busy: each pattern on texts made from itself, and logs of any length."""

from __future__ import annotations

import base64
import random
import re
import time
import tracemalloc

import pytest

from gpuinstall.catalog.failures.classify import classify
from gpuinstall.catalog.failures.excerpt import BLOCK, LONG_TEXT, excerpt, excerpt_of
from gpuinstall.catalog.failures.pattern import Pattern
from gpuinstall.catalog.failures.transcript import SEARCHED, Transcript
from tests.unit.catalog.failures.attacks import patterns, worst_seconds

SECONDS = 0.08  # for a text of that length; the slowest take a third of it
LINE = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
NOISE = base64.b64encode(random.Random(1).randbytes(6_000_000)).decode()
NOISY = re.sub(r"(.{70})", r"\1\n", NOISE)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.heavy)])
def test_no_pattern_is_slow_on_a_text_made_from_itself(every: int) -> None:
    worst = {pattern.says: worst_seconds(pattern, SECONDS) for pattern in [*patterns()][::every]}
    slow = {says: seconds for says, seconds in worst.items() if seconds > SECONDS}
    assert slow == {}


def test_what_is_searched_with_one_pattern_has_an_end() -> None:
    pattern = Pattern("nothing provides …__cuda")
    text = "".join(f"nothing provides {number:x}\n__cud a\n" for number in range(200_000))
    start = time.process_time()
    assert Transcript(text).find(pattern) is None
    assert time.process_time() - start < 10
    assert len(text) > SEARCHED


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{NOISE}{LINE}{NOISE}", id="one line"),
        pytest.param(
            re.sub(r"(.{70})", r"\1\n", NOISE) + f"\n{LINE}\n" + re.sub(r"(.{70})", r"\1\n", NOISE),
            id="noise",
        ),
        pytest.param(
            "".join(f"step {n} loss 0.{n}\n" for n in range(400_000)) + LINE, id="training"
        ),
        pytest.param(
            "\r".join(f"{n:>7}/400000 [#####]" for n in range(400_000)) + f"\r{LINE}",
            id="progress bar",
        ),
    ],
)
def test_an_error_is_found_in_megabytes(text: str) -> None:
    start = time.process_time()
    evidence = Transcript(text).find(Pattern("no kernel image is available"))
    assert evidence is not None
    assert "no kernel image" in evidence
    assert time.process_time() - start < 10


def test_a_hundred_megabytes_are_read_a_few_at_a_time() -> None:
    block = re.sub(r"(.{70})", r"\1\n", NOISE[:BLOCK])
    tracemalloc.start()
    kept, _ = excerpt_of(block.replace("A", f"A{number}") for number in range(12))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) <= LONG_TEXT * 1.1
    assert most < 100_000_000


def test_a_short_text_is_kept_as_it_is() -> None:
    assert excerpt("one\r\ntwo\n") == "one\r\ntwo\n"
    assert excerpt("") == ""


def test_of_a_long_text_beginning_errors_and_end_are_kept_in_order() -> None:
    noise = "\n".join(NOISE[at : at + 70] for at in range(0, len(NOISE), 70))
    kept = excerpt(
        f"the beginning\n{noise}\nbefore it\nValueError: in the middle\n{noise[::-1]}\nthe end"
    )
    places = [
        kept.index(part)
        for part in ("the beginning", "before it\nValueError: in the middle", "the end")
    ]
    assert places == sorted(places)


def test_the_lines_before_an_error_are_kept_with_it() -> None:
    blocks = [
        NOISY[:2_000_000],
        "\nthe line before it\n",
        "ValueError: in the middle\n",
        NOISY[2_000_000:5_000_000],
    ]
    kept, _ = excerpt_of(blocks)
    assert "the line before it\nValueError: in the middle\n" in kept


def test_a_number_without_end_is_no_character() -> None:
    assert classify("&#" + "9" * 10_000 + ";") == ()
