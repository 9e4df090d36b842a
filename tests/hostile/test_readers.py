"""Damaged documents, for a moment each; for ``LAB_SECONDS`` if that is set, as ``make torture`` does."""

import json
import os
import sys
import time
from contextlib import suppress
from functools import partial

import pytest

from gpuinstall.base import process
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.catalog.pages import parse_page
from gpuinstall.install.scripts import read_script
from gpuinstall.sources.web import Page
from tests.hostile.readers import COSTLY, JSON, costing, fuzzed, known_readers
from tests.lab.bounded import apart
from tests.lab.cases import mostly_heavy

SECONDS = float(os.environ.get("LAB_SECONDS", "0.2"))


def test_every_reader_takes_a_damaged_document_or_says_why_not(tmp_path):
    cases = [fuzzed(tmp_path, SECONDS, name) for name in known_readers(tmp_path)]
    assert [case.fault for case in cases if case.fault] == []


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
