"""Entries of the failure table have sources, valid patterns, and fixes."""

import re
import shutil
from collections import Counter
from itertools import chain

import pytest

from gpuinstall.base.machine import Machine
from gpuinstall.catalog.failures import table
from gpuinstall.catalog.failures.classify import classify, known_of
from gpuinstall.catalog.failures.problems import FixContext, finding_for, fix
from gpuinstall.catalog.failures.table import (
    Condition,
    Failure,
    ProblemKind,
    Sign,
    load_conditions,
    load_failures,
    load_lookalikes,
)
from tests.unit.plan.machines import machine

FAILURES = tuple(load_failures().values())
HERE = Machine("linux", "x86_64", distribution="Ubuntu 24.04")
OF_LINUX = ("F10", "F11", "F13", "F20", "F49", "F110", "F166")
"""Failures that only Linux's loader, device nodes, or kernel modules cause."""
PLATFORMS = ("wsl", "windows", "macos", "container", "conda", "linux")
CONDITIONS = load_conditions()
FILLED = {name for row in CONDITIONS for name in row.fills}
OF_MACHINE = {
    *chain(*(row["holds"] for row in table.read_table("conditions")["machine"]))
}
OF_MACHINE |= {*known_of(machine("RTX 4090", "GTX 1080", arch="aarch64"))}
OF_MACHINE |= {"gfx-override", "devices-hidden", "same-cuda-major", "other-cuda-major"}


def is_condition(name):
    """Return whether a text, machine, or failure can fulfill a condition."""
    values = {
        row.name
        for row in CONDITIONS
        if any("?P<it>" in p.says for p in (*row.says, *row.runs))
    }
    names = {row.name for row in CONDITIONS} | FILLED | OF_MACHINE | {*load_failures()}
    return name in names or any(name.startswith(f"{value} ") for value in values)


def test_failure_entries_have_unique_ids():
    groups = map(table.read_table, table.GROUPS)
    ids = [row["id"] for group in groups for row in group["failure"]]

    assert [name for name in ids if not re.fullmatch(r"F\d{2,3}", name)] == []
    assert [name for name, count in Counter(ids).items() if count > 1] == []


def says_what_why_and_where_from(failure):
    """Return whether an entry has its texts."""
    return (
        bool(failure.title and failure.messages)
        and failure.title[-1] != "."
        and failure.cause.endswith(".")
        and failure.apart.endswith(".")
    )


def names_its_threads(failure):
    """Return whether an entry has sources that can be looked up."""
    sources = [
        re.fullmatch(r"[\w.-]+/[\w.-]+(#\d+)?|https://\S+", source)
        for source in failure.sources
    ]
    return bool(sources) and all(sources)


def has_signs_that_can_be_looked_for(failure):
    """Return whether an entry has signs, all of which compile."""
    return bool(failure.signs) and all(map(is_sign, failure.signs))


def is_sign(sign):
    """Return whether a sign has one pattern and valid circumstances."""
    return (
        (sign.says is None) != (sign.sees is None)
        and (sign.says is None or can_be_looked_for(sign.says))
        and 0 < sign.weight < 1
        and all(is_condition(name.removeprefix("!")) for name in sign.when)
    )


def can_be_looked_for(pattern):
    """Return whether a pattern compiles and is lowercase."""
    return not re.search(r"(?<!\\)[A-Z]", pattern.says) and bool(pattern.regex.pattern)


def refers_to_what_exists(failure):
    """Return whether the entries that an entry refers to exist."""
    others = load_failures().keys() - {failure.id}
    causes = {name for name in failure.unless if re.fullmatch(r"F\d+", name)}
    return causes | {*failure.narrows} <= others


def says_what_to_do_on_every_platform(failure):
    """Return whether an entry has a fix on all its platforms."""
    return all(
        fix(failure.id, FixContext((platform,)))
        for platform in PLATFORMS
        if platform != "windows" or failure.id not in OF_LINUX
    )


RULES = (
    says_what_why_and_where_from,
    names_its_threads,
    has_signs_that_can_be_looked_for,
    refers_to_what_exists,
    says_what_to_do_on_every_platform,
)


def test_every_failure_entry_passes_all_table_rules():
    wrong = [
        (failure.id, rule.__name__)
        for failure in FAILURES
        for rule in RULES
        if not rule(failure)
    ]

    assert wrong == []


def test_conditions_of_failures_exist():
    assert all(p.regex.pattern for row in CONDITIONS for p in (*row.says, *row.runs))
    assert all(map(is_condition, chain(*(failure.unless for failure in FAILURES))))


def test_similar_error_entries_have_cause_and_fix():
    assert all(
        other.fix.commands and other.cause for other in load_lookalikes().values()
    )


NEW = """
[[failure]]
id = "F999"
title = "the frobnicator has no spindle"
messages = ["WidgetError: the frobnicator has lost its spindle"]
cause = "The spindle was taken out."
apart = "Only frobnicators have one."
signs = [{ says = 'frobnicator has lost its spindle', weight = 0.9 }]
fix.apt = ["sudo apt-get install spindle"]
fix.any = ["put the spindle back"]
sources = ["owner/repository#1"]
problems = [{ code = "spindle-missing" }]
"""


@pytest.fixture
def with_a_new_entry(tmp_path, monkeypatch):
    data = shutil.copytree(table.DATA, tmp_path / "data")
    with (data / "runtime.toml").open("a", encoding="utf-8") as file:
        file.write(NEW)
    monkeypatch.setattr(table, "DATA", data)
    _forget()
    yield
    _forget()


def _forget():
    for cached in vars(table).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


@pytest.mark.usefixtures("with_a_new_entry")
def test_one_table_entry_defines_a_new_failure():
    (cause,) = classify("WidgetError: the frobnicator has lost its spindle", HERE)
    reported = finding_for("spindle-missing", "no spindle", FixContext.of_machine(HERE))
    assert (cause.id, reported.id) == ("F999", "F999")
    lines = [*map(str, cause.fix)]
    assert lines == ["sudo apt-get install spindle", "put the spindle back"]
    assert reported.fix == "\n".join(lines)


@pytest.mark.parametrize(
    "file", [*table.GROUPS, "problems", "lookalikes", "conditions"]
)
def test_failure_table_keys_are_dataclass_fields(file):
    kinds = {
        "failure": Failure,
        "problem": ProblemKind,
        "problems": ProblemKind,
        "signs": Sign,
        "condition": Condition,
    }
    pages = table.read_table(file)
    rows = [(key, row) for key in pages.keys() & kinds.keys() for row in pages[key]]
    assert rows
    for kind, row in rows:
        rows += [
            (key, part) for key in ("signs", "problems") for part in row.get(key, ())
        ]
        assert row.keys() <= kinds[kind].__annotations__.keys(), row
