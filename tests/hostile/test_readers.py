"""Damaged documents, for a moment each; ``make torture`` takes minutes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from gpuinstall.base import process
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.catalog.pages import parse_page
from gpuinstall.install.scripts import read_script
from gpuinstall.sources.web import Page
from tests.lab.cases import mostly_heavy
from tests.torture.bounded import Case, apart
from tests.torture.readers import COSTLY, JSON, costing, fuzzed, known_readers

SECONDS = 0.2


def test_every_reader_takes_a_damaged_document_or_says_why_not(tmp_path):
    cases = [fuzzed(tmp_path, SECONDS, name) for name in known_readers(tmp_path)]
    assert [case.fault for case in cases if case.fault] == []


def test_an_attack_whose_process_dies_or_does_not_end_is_broken_and_the_others_go_on():
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


@pytest.mark.parametrize("costly", mostly_heavy(COSTLY, {"nested lists", "strings"}))
def test_a_long_json_document_takes_little_memory_and_time(costly):
    case = apart(costly, partial(costing, costly), 60)
    assert case.fault == ""


@pytest.mark.heavy
def test_a_package_of_100_000_files_is_read():
    hashes = {"hashes": {"sha256": "0" * 64}, "core-metadata": {"sha256": "0" * 64}}
    file = {
        "filename": "x-1-py3-none-any.whl",
        "url": "x",
        "size": 3,
        "upload-time": "2026-11-21",
        "yanked": False,
    }
    file |= {**hashes, "provenance": None, "requires-python": ">=3"}
    page = json.dumps({"files": [file] * 100_000})
    assert len(parse_page.__wrapped__(Page(page, JSON, "https://index.example/torch/"))) == 100_000


def test_a_machine_without_end_is_read_no_further_than_the_longest_document():
    limited = 'ulimit -v 1000000; exec "$0" -m gpuinstall plan --machine /dev/zero'  # kB, of which a plan needs a tenth
    done = process.run(["sh", "-c", limited, sys.executable], seconds=60)
    assert (done.status, "it is not JSON" in done.err) == (2, True), done.err


@pytest.mark.parametrize("repeated", ["# /// script\n", "\n", "#\n", " "])
def test_a_script_that_opens_its_metadata_many_times_or_never_ends_them_is_read_at_once(
    tmp_path, repeated
):
    file = tmp_path / "train.py"
    file.write_text("# /// script\n" + repeated * 50_000, encoding="utf-8")
    start = time.process_time()
    with suppress(GpuInstallError):
        assert read_script(file) is None
    assert time.process_time() - start < 2
