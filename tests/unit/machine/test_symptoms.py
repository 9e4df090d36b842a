"""Consistency of the rows in ``symptoms.toml``."""

import ast
import re
from pathlib import Path

import tomli

from gpuinstall.catalog.failures.table import load_problems
from gpuinstall.machine import symptoms

ROOM = Path(symptoms.__file__).parent
TABLES = [tomli.loads(Path(name).read_text("utf-8")) for name in symptoms.SYMPTOMS]
ROWS = [row for table in TABLES for rows in table.values() for row in rows]


def computed_names():
    """Return a pattern that matches the names of circumstances in the code.

    An f-string such as ``f"nvml-{fault}"`` matches every name with its prefix.
    """
    patterns = []
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Constant(value=str(name)):
                    patterns.append(re.escape(name))
                case ast.JoinedStr(values=[ast.Constant(value=str(name)), _]):
                    patterns.append(f"{re.escape(name)}.+")
    return re.compile("|".join(patterns))


def names_of(row):
    yield from (
        name for key in ("when", "either", "unless") for name in row.get(key, ())
    )
    yield from re.findall(
        r"{([\w-]+)(?:!r)?}", row.get("message", "") + row.get("why", "")
    )


def test_failure_table_uses_only_known_circumstances():
    known = computed_names()

    assert [
        name for row in ROWS for name in names_of(row) if not known.fullmatch(name)
    ] == []


def test_every_symptom_code_is_in_problem_table():
    codes = {row.get(key, row["code"]) for row in ROWS for key in ("code", "like")}

    assert codes - load_problems().keys() == set()
