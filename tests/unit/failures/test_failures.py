"""The catalogue is whole: every entry is there, sourced, compiled, and mends something on every platform."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from gpuinstall.failures import table
from gpuinstall.failures.classify import classify
from gpuinstall.failures.problems import FixContext, finding_for, fix
from gpuinstall.failures.table import load_advice, load_circumstances, load_failures, load_lookalikes
from gpuinstall.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.failures.table import Failure

FAILURES = tuple(load_failures().values())
HERE = Machine("linux", "x86_64", distribution="Ubuntu 24.04")
PLATFORMS = ("wsl", "windows", "macos", "container", "conda", "linux")
NAMES = {*load_circumstances(), "npm"}


def test_the_entries_are_numbered_without_a_gap() -> None:
    assert [failure.id for failure in FAILURES] == [f"F{number:02}" for number in range(1, len(FAILURES) + 1)]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: str(failure.id))
class TestEachEntry:
    def test_says_what_why_and_where_from(self, failure: Failure) -> None:
        assert failure.title
        assert failure.title[-1] != "."
        assert failure.cause.endswith(".")
        assert failure.apart.endswith(".")
        assert failure.messages
        assert {"text"} <= set(failure.detected) <= {"before", "after", "text"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", failure.date)
        assert failure.level in {"reported", "inferred"}

    def test_names_its_threads(self, failure: Failure) -> None:
        assert failure.sources
        for source in failure.sources:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+(#\d+)?|https://\S+", source)

    def test_has_signs_that_compile_and_can_be_looked_for(self, failure: Failure) -> None:
        assert failure.signs
        for sign in failure.signs:
            assert 0 < sign.weight < 1
            assert not re.search(r"(?<!\\)[A-Z]", sign.pattern.says)
            assert sign.pattern.wrapped.pattern
            assert min(map(len, sign.pattern.needles)) >= 3
            assert {*sign.when, *sign.unless} <= NAMES

    def test_refers_only_to_what_exists(self, failure: Failure) -> None:
        assert {*failure.behind, *failure.narrows} <= load_failures().keys() - {failure.id}
        assert set(failure.advice) <= load_advice().keys()

    def test_says_what_to_do_on_every_platform(self, failure: Failure) -> None:
        assert [platform for platform in PLATFORMS if not fix(failure.id, FixContext((platform,)))] == []


def test_every_circumstance_is_used_and_compiles() -> None:
    used = {name for failure in FAILURES for sign in failure.signs for name in (*sign.when, *sign.unless)}
    assert used - load_circumstances().keys() == set()
    for patterns in load_circumstances().values():
        assert all(pattern.wrapped.pattern and min(map(len, pattern.needles)) for pattern in patterns)


def test_advice_and_lookalikes_give_reasons() -> None:
    assert all(advice.told and advice.why for advice in load_advice().values())
    assert all(other.fix and other.why and other.patterns for other in load_lookalikes())
    assert {"toolkit-for-torch", "ld-library-path", "reset-in-use"} <= load_advice().keys()


NEW = """
[[failure]]
id = "F999"
title = "the frobnicator has no spindle"
messages = ["WidgetError: the frobnicator has lost its spindle"]
cause = "The spindle was taken out."
apart = "Only frobnicators have one."
detected = ["text"]
signs = [{ says = 'frobnicator has lost its spindle', weight = 0.9 }]
fix.apt = ["sudo apt-get install spindle"]
fix.any = ["put the spindle back"]
sources = ["owner/repository#1"]
problem = [{ code = "spindle-missing", needs = ["root"] }]
"""


@pytest.fixture
def with_a_new_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    data = shutil.copytree(table.DATA, tmp_path / "data")
    with (data / "runtime.toml").open("a", encoding="utf-8") as file:
        file.write(NEW)
    monkeypatch.setattr(table, "DATA", data)
    _forget()
    yield
    _forget()


def _forget() -> None:
    for cached in vars(table).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


@pytest.mark.usefixtures("with_a_new_entry")
def test_a_new_failure_is_one_entry() -> None:
    (cause,) = classify("WidgetError: the frobnicator has lost its spindle", here=HERE)
    reported = finding_for("spindle-missing", "no spindle", FixContext.of_machine(HERE))
    assert (cause.id, reported.id, reported.needs) == ("F999", "F999", ("root",))
    assert cause.fix == ("sudo apt-get install spindle", "put the spindle back")
    assert reported.fix == "\n".join(cause.fix)
