"""What stands on a person's screen, whatever a text from outside holds."""

import sys
from itertools import cycle

import pytest

from gpuinstall.base.text import visible
from tests.hostile.escapes import PAYLOADS, SOURCES, seen
from tests.hostile.repository import Repository
from tests.lab.driver import NO_GPU
from tests.lab.workshop import Workshop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="terminals as Linux has them")


QUICK = {
    "an index of pyproject.toml",
    "a requirement",
    "a lock's package",
    "a record's message",
    "a device",
    "a notebook",
}
CASES = [
    pytest.param(*case, marks=() if case[0] in QUICK else pytest.mark.heavy)
    for case in zip(SOURCES, cycle(("erases the line above", "begins a line")))
]


@pytest.mark.parametrize(("source", "payload"), CASES)
def test_a_text_from_outside_forges_and_erases_no_line(source, payload, tmp_path, play, libraries):
    play(NO_GPU)
    repository = Repository(tmp_path / "home")
    repository.prepare()
    person = {"HOME": str(repository.home), "UV_OFFLINE": "1"}
    workshop = Workshop(repository.folder, repository.home / "caches", person)

    case = seen(SOURCES[source], PAYLOADS[payload], repository, workshop.environment, libraries)
    assert case.fault == ""


@pytest.mark.parametrize("text", PAYLOADS.values(), ids=PAYLOADS)
def test_what_cannot_be_printed_is_written_out(text):
    assert visible(text).isprintable()
    assert visible("grün · 東京 2 × GPU\u00a0…") == "grün · 東京 2 × GPU\u00a0…"
    assert visible("a\x1b[2K\n\u202e\ud800") == "a\\x1b[2K\\n\\u202e\\ud800"
