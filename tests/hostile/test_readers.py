"""Tests that read damaged documents for ``LAB_SECONDS``."""

import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from gpuinstall.base import process
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.files import parse_json, parse_toml
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.shapes import parse_pyproject
from gpuinstall.catalog.failures.classify import classify
from gpuinstall.catalog.pages import parse_names, parse_page, parse_sources
from gpuinstall.environments.environment import NAME, read_marker
from gpuinstall.lock.file.fit import check_lock
from gpuinstall.lock.file.lock import parse
from gpuinstall.lock.file.target import GLIBC, Target
from gpuinstall.lock.request.declaration import declare_project, read_inputs
from gpuinstall.lock.request.lock_request import create_target_machine
from gpuinstall.lock.request.pyproject import ProjectFile
from gpuinstall.plan.values import PlanInput
from gpuinstall.sources.configuration import (
    convert_pip_options,
    parse_pip_options,
    parse_uv_settings,
)
from gpuinstall.sources.web import Page
from tests.frozen import frozen_catalog
from tests.lab.cases import mostly_heavy
from tests.lab.clone import ROOT
from tests.unit.install.environments import lock_text

PAGES: dict[str, Callable[..., object]] = {
    "wheels": parse_page.__wrapped__,
    "sources": partial(parse_sources.__wrapped__, package="torch"),
    "names": parse_names,
}
"""HTTP clients without a cache, which would keep every page."""
SECONDS = 5.0
"""The maximum CPU seconds for reading one document."""
WEIRD = (
    "\0",
    "\n",
    *[
        "[",
        "]]",
        "{",
        '"',
        "../",
        "%2f",
        "😀",
        "-1",
        "null",
        "NaN",
        "1e999",
        "#",
        "=",
        "<a",
    ],
    "9" * 300,
)
PAGE = (
    '<a href="torch-2.14.1-cp312-cp312-linux_x86_64.whl#sha256=00" data-core-metadata="true">x</a>\n'
    * 3
)
PEP691 = '{"files": [{"filename": "torch-1-py3-none-any.whl", "url": "x", "hashes": {}, "size": 3}]}'
LISTED = """{
    "filename": "x-1-py3-none-any.whl",
    "url": "x",
    "size": 3,
    "upload-time": "2026-11-21",
    "yanked": false,
    "hashes": {"sha256": "HASH"},
    "core-metadata": {"sha256": "HASH"},
    "provenance": null,
    "requires-python": ">=3"
}"""
JSON = "application/vnd.pypi.simple.v1+json"
MACHINE = """{
    "schema": "gpuinstall.machine/1",
    "os": "linux",
    "arch": "x86_64",
    "gpus": [{"index": 0, "name": "A100", "compute_capability": "8.0", "memory_mib": 1}],
    "driver": {"version": "535.1", "cuda": "12.2"}
}"""
LONG = 49_000_000
"""A size just below the limit of an index page, the longest document."""
COSTLY: dict[str, tuple[str, str, str]] = {
    "nested lists": ("", "[", ""),
    "objects": ('{"files":[', '{"":0},', "{}]}"),
    "strings": ('{"files":[', '"ab",', "0]}"),
    "long numbers": ('{"files":[', "9" * 4299 + ",", "0]}"),
    "a wide string": ('{"files":"😀', "a", '"}'),
    "keys": ('{"files":[],"a":0', ',"%x":0', "}"),
}
"""Documents that are costly to parse: start, repeated part, and end."""
LOG = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\n- libcudart.so.12\n"
    * 5
)


def fuzzed(folder, seconds, name):
    """Read damaged documents, and return an unexpected error or delay."""
    own = folder / name.replace(" ", "-")
    own.mkdir()
    read, seed, foreseen = known_readers(own)[name]
    chance, until = random.Random(name), time.monotonic() + seconds
    while time.monotonic() < until:
        text, start = _damaged(seed, chance), time.process_time()
        try:
            read(text)
        except foreseen:
            pass
        except Exception as error:  # noqa: BLE001  an unexpected error is the result
            return f"{name}: {type(error).__name__}: {error} for {text[:200]!r}"
        took = time.process_time() - start
        if took > SECONDS:
            return f"{name}: {took:.1f} s for {len(text)} characters"
    return ""


def read_costly(name):
    """Read a long document with every JSON reader."""
    head, unit, tail = COSTLY[name]
    middle = (
        "".join(unit % n for n in range(LONG // 9))
        if "%" in unit
        else unit * (LONG // len(unit))
    )
    text = f"{head}{middle}{tail}"
    for read in (*(_page(read, JSON) for read in PAGES.values()), parse_json):
        with suppress(GpuInstallError, ValueError):
            read(text)


def known_readers(folder):
    """Return each reader with a valid document and its expected errors."""
    ours, toml = (GpuInstallError,), (GpuInstallError, ValueError)
    return {
        **{
            f"{name} of HTML": (_page(read, "text/html"), PAGE, ours)
            for name, read in PAGES.items()
        },
        **{
            f"{name} of JSON": (_page(read, JSON), PEP691, ours)
            for name, read in PAGES.items()
        },
        "a lock": (_lock, lock_text(), ours),
        "a marker": (
            _written(folder / NAME, lambda path: read_marker(path.parent)),
            '{"schema": "x", "id": "1"}',
            (),
        ),
        "requirements": (
            _written(folder / "fuzz.txt", lambda path: read_inputs(str(path))),
            "torch==2.*\n-r x\n",
            ours,
        ),
        "a requirement": (
            parse_requirement,
            "torch[opt] >= 2 ; python_version < '3'",
            ours,
        ),
        "pip's settings": (
            lambda text: [
                *convert_pip_options(
                    parse_pip_options(text), folder / "pip.conf", folder
                )
            ],
            "[global]\nindex-url = https://x\n",
            toml,
        ),
        "uv's settings": (
            lambda text: parse_uv_settings(parse_toml(text), folder / "uv.toml"),
            'index-url = "https://x"\n',
            toml,
        ),
        "a project": (
            lambda text: declare_project(ProjectFile(parse_pyproject(text))),
            '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n[dependency-groups]\ndev = ["numpy"]\n',
            toml,
        ),
        "a machine": (lambda text: Machine.from_dict(parse_json(text)), MACHINE, toml),
        "a log": (classify, LOG, ()),
    }


def _page(read, kind):
    return lambda text: read(Page(text, kind, "https://index.example/torch/"))


def _lock(text):
    lock = parse("pylock.cu126.toml", text)
    target = Target("cu126")
    lock.is_sealed  # noqa: B018  reading it is the test
    machine = create_target_machine(target, glibc=GLIBC)
    check_lock(lock, PlanInput(machine, Request(), frozen_catalog()))


def _written(path, read):
    def reader(text):
        path.write_text(text, encoding="utf-8", errors="replace")
        with suppress(UnicodeDecodeError):
            read(path)

    return reader


def _damaged(text, chance):
    """Return a document with insertions, deletions, and repetitions."""
    for _ in range(chance.randint(1, 6)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.randint(0, 30))
        repeated = text[start:end] * chance.randint(0, 50)
        piece = chance.choice(
            (chance.choice(WEIRD), repeated, chr(chance.randint(1, 0x2FFF)))
        )
        text = text[:start] + piece + text[chance.choice((start, end)) :]
    return text[:200_000]


EACH_S = float(os.environ.get("LAB_SECONDS", "0.1"))
"""The seconds to spend on random input for each reader."""


def test_corrupted_documents_are_read_or_rejected(tmp_path):
    faults = [fuzzed(tmp_path, EACH_S, name) for name in known_readers(tmp_path)]
    assert [fault for fault in faults if fault] == []


@pytest.mark.parametrize("costly", mostly_heavy(COSTLY, {"strings"}))
def test_long_json_is_parsed_within_limits(costly):
    # CPU seconds and kB; a list of these strings would need 1 GB.
    limited = (
        'ulimit -t 15; ulimit -v 700000; exec "$0" -m tests.hostile.test_readers "$1"'
    )
    done = process.run(["sh", "-c", limited, sys.executable, costly], cwd=ROOT)
    assert done.ok, done.err


@pytest.mark.heavy
def test_index_page_with_100_000_files_is_read():
    page = (
        '{"files": [' + ", ".join([LISTED.replace("HASH", "0" * 64)] * 100_000) + "]}"
    )
    read = parse_page.__wrapped__(Page(page, JSON, "https://index.example/torch/"))
    assert len(read) == 100_000


def test_oversized_machine_document_is_rejected():
    limited = 'ulimit -v 1000000; exec "$0" -m gpuinstall plan --machine /dev/zero'  # kB; a plan needs a tenth of it
    done = process.run(["sh", "-c", limited, sys.executable], seconds=60)
    assert (done.status, "it is not JSON" in done.err) == (2, True), done.err


if __name__ == "__main__":
    read_costly(sys.argv[1])
