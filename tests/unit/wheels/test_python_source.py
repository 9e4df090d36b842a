"""How the Python sources of wheels are parsed."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuinstall.wheels.python_source import parse_source


class Garbage:
    """Runs Python when it is collected, so that another thread may take its turn."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        sum(range(50))


@pytest.fixture
def many_turns() -> Iterator[None]:
    """Let threads take turns, and garbage be collected, as often as can be."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("many_turns")
def test_threads_parse_side_by_side():
    source = Path(ast.__file__).read_bytes()

    def statements(_: int) -> int:
        Garbage()
        return len(parse_source(source).body)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(statements, range(12)))) == 1
