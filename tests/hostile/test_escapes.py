"""Tests of terminal output that contains malicious text."""

import json
import os
import sys
import unicodedata
from collections.abc import Callable
from itertools import cycle, pairwise
from typing import NamedTuple

import pytest

from gpuinstall.base.text import sanitize
from tests.frozen import GPUINSTALL
from tests.hostile.repository import LOCK, Repository
from tests.lab.bounded import find_run_fault, run
from tests.lab.driver import NO_GPU, FakeDriver, FakeGpu, environment
from tests.lab.screen import opened, shown
from tests.lab.workshop import Workshop
from tests.unit.install.environments import lock_text

COLUMNS, LINES = 150, 120
FIRST, FORGED = "the line above all", "FORGED"
PAYLOADS = {
    "erases its line": f"\x1b[2K\r{FORGED}",
    "erases the line above": f"\x1b[1A\x1b[2K\r{FORGED}",
    "clears the screen": f"\x1b[2J\x1b[H{FORGED}",
    "resets": f"\x1bc{FORGED}",
    "colors": f"\x1b[31m{FORGED}\x1b[0m",
    "names the window": f"\x1b]0;{FORGED}\x07",
    "goes back": f"{chr(8) * 160}{FORGED}",
    "returns": f"\r{FORGED}",
    "begins a line": f"\n{FORGED}",
    "begins a line as Unicode does": f"\u2028{FORGED}\x85{FORGED}\x0b{FORGED}\x0c{FORGED}",
    "is of the upper half": f"\x9b2K\x9b1G{FORGED}",
    "is turned around": f"\u202e{FORGED}\u2066\u200f",
    "is a lone surrogate": f"\ud800\udc9b{FORGED}",
}


class Source(NamedTuple):
    """A place for malicious text, and the command that prints the text."""

    write: Callable[[Repository, str], object] | None
    """The command, or None if the text is the GPU's name from the driver."""
    command: str


def put(path, form):
    """Return a writer that inserts text for RAW, or escaped text for TEXT."""

    def write(repository, text):
        escaped = json.dumps(text)[1:-1]
        filled = form.replace("RAW", text).replace("TEXT", escaped)
        repository.write(path, filled)

    return write


RECORD = """{
    "node": "n1",
    "command": "sync",
    "machine": null,
    "document": {"exit_code": 8, "errors": [{"message": "TEXT"}]}
}"""
MACHINE = """{
    "schema": "gpuinstall.machine/1",
    "os": "linux",
    "arch": "x86_64",
    "glibc": "2.36",
    "gpus": [{"index": 0, "name": "A TEXT", "compute_capability": "8.0", "memory_mib": 81920}],
    "driver": {"version": "580.95.05", "cuda": "13.0"}
}"""

SOURCES = {
    "an index of pyproject.toml": Source(
        put("pyproject.toml", '[tool.uv]\nindex-url = "https://x.example/TEXT"'),
        "lock --offline",
    ),
    "a requirement": Source(
        put("requirements.txt", "torch == RAW\n"), "plan -r requirements.txt"
    ),
    "a lock's package": Source(
        put(LOCK, lock_text().replace('"torch"', '"torch TEXT"', 1)),
        "sync --offline",
    ),
    "a lock's address": Source(
        lambda repository, text: repository.lock(
            json.dumps(f"https://x.example/{text}")
        ),
        "export requirements",
    ),
    "a record's message": Source(put("n1.sync.json", RECORD), "report ."),
    "a machine's GPU": Source(
        put("machine.json", MACHINE), "plan --machine machine.json"
    ),
    "a device": Source(None, "probe"),
    "a log": Source(
        put("log.txt", "CUDA error: no kernel image is available for execution RAW\n"),
        "explain log.txt",
    ),
    "a conda file": Source(
        put("environment.yml", 'dependencies:\n  - pip:\n    - "torch TEXT"\n'),
        "plan",
    ),
}


def seen(source, text, repository, variables, library):
    """Run a command on a terminal, and return visible deceptions."""
    env = {**variables, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    if source.write:
        source.write(repository, text)
    else:
        driver = FakeDriver((FakeGpu(text, cc="8.0"),))
        env |= environment(driver, library, repository.home)
    ended, raw = in_a_terminal(
        (*GPUINSTALL, *source.command.split()), env, repository.folder
    )
    found = ", ".join(faults(shown(raw, COLUMNS, LINES)))
    return find_run_fault(ended, {0, 2, 3, 4, 5, 6, 7, 8}, found)


def in_a_terminal(words, env, cwd):
    """Run a program on a terminal, and return its exit status and output."""
    with opened(COLUMNS, LINES) as (terminal, raw):
        os.write(terminal, f"{FIRST}\r\n".encode())
        ended = run(words, env, cwd, terminal=terminal)
        os.close(terminal)
    return ended, bytes(raw)


def faults(screen):
    """Return signs that terminal output deceives its reader."""
    rows = [row.rstrip() for row in screen.display]
    marks = "".join(
        mark.data for at in range(LINES) for mark in screen.buffer[at].values()
    )
    found = {
        "the first line is gone": rows[0] != FIRST,
        "a line is forged": any(
            row.startswith(FORGED) and len(above) < COLUMNS
            for above, row in pairwise(rows)
        ),
        "a mark is raw": any(unicodedata.category(mark)[:1] == "C" for mark in marks),
    }
    return [fault for fault, is_there in found.items() if is_there]


pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="requires Linux terminals"
)


QUICK = {
    "an index of pyproject.toml",
    "a requirement",
    "a lock's package",
    "a record's message",
    "a device",
    "a log",
}
CASES = [
    pytest.param(*case, marks=() if case[0] in QUICK else pytest.mark.heavy)
    for case in zip(SOURCES, cycle(("erases the line above", "begins a line")))
]


@pytest.mark.parametrize(("source", "payload"), CASES)
def test_line_breaks_in_printed_text_are_escaped(
    source, payload, tmp_path, play, libraries
):
    play(NO_GPU)
    repository = Repository(tmp_path / "home")
    repository.prepare()
    person = {"HOME": str(repository.home), "UV_OFFLINE": "1"}
    workshop = Workshop(repository.folder, repository.home / "caches", person)

    text, variables = PAYLOADS[payload], workshop.environment
    assert seen(SOURCES[source], text, repository, variables, libraries) == ""


@pytest.mark.parametrize("text", PAYLOADS.values(), ids=PAYLOADS)
def test_unprintable_text_is_escaped(text):
    assert sanitize(text).isprintable()
    assert sanitize("grün · 東京 2 × GPU\u00a0…") == "grün · 東京 2 × GPU\u00a0…"
    assert sanitize("a\x1b[2K\n\u202e\ud800") == "a\\x1b[2K\\n\\u202e\\ud800"
