"""Damaged documents, for a moment each; ``make torture`` takes minutes."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from gpuinstall import process
from tests.torture.bounded import Case, apart
from tests.torture.readers import fuzzed, known_readers

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 0.2


def test_every_reader_takes_a_damaged_document_or_says_why_not(tmp_path: Path) -> None:
    cases = [fuzzed(tmp_path, SECONDS, name) for name in known_readers(tmp_path)]
    assert [case.fault for case in cases if case.fault] == []


def test_an_attack_whose_process_dies_or_does_not_end_is_broken_and_the_others_go_on() -> None:
    attacks = (("killed", _killed, 30), ("endless", _endless, 1), ("sound", _sound, 30))
    with ThreadPoolExecutor() as threads:
        killed, endless, sound = threads.map(lambda attack: apart(*attack), attacks)
    assert f"ended with -{signal.SIGKILL:d} after" in killed.fault
    assert (killed.name, endless.name) == ("killed", "endless")
    assert f"ended with -{signal.SIGKILL:d} after 1 s" in endless.fault
    assert sound == Case("held")


def _killed() -> Case:
    os.kill(os.getpid(), signal.SIGKILL)
    return Case("held")


def _endless() -> Case:
    time.sleep(60)
    return Case("held")


def _sound() -> Case:
    return Case("held")


def test_a_machine_without_end_is_read_no_further_than_the_longest_document() -> None:
    limited = 'ulimit -v 1000000; exec "$0" -m gpuinstall plan --machine /dev/zero'  # kB, of which a plan needs a tenth
    done = process.run(["sh", "-c", limited, sys.executable], seconds=60)
    assert (done.status, "it is not JSON" in done.err) == (2, True), done.err
