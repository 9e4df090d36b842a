"""What is advised can be pasted: commands are written out, and what was typed is in them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from gpuinstall.advice import in_full
from gpuinstall.errors import UsageError
from gpuinstall.failures.table import load_failures
from gpuinstall.lock.uv_failure import explain_failure
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.text import some
from tests.lab.advice import judged

ROOT = Path(__file__).resolve().parents[2]
LINE = ["gpuinstall", "install", "torch>=2.9", "--offline", "--torch-index", "https://ann:secret@index.example/whl"]


@pytest.mark.parametrize(
    ("hint", "command"),
    [
        (
            "the same with --replace   # afresh",
            "gpuinstall install 'torch>=2.9' --offline --torch-index https://index.example/whl --replace   # afresh",
        ),
        (
            "the same without --offline",
            "gpuinstall install 'torch>=2.9' --torch-index https://index.example/whl",
        ),
        ("the same again", "gpuinstall install 'torch>=2.9' --offline --torch-index https://index.example/whl"),
        ("df -h\nthe same packages", "df -h\nthe same packages"),
    ],
)
def test_a_command_that_is_to_be_run_again_is_written_out_without_a_password(hint: str, command: str) -> None:
    assert in_full(hint, LINE) == command


def test_names_beyond_six_are_a_number() -> None:
    assert some(["numpy", "pandas"]) == "numpy, pandas"
    assert some(list("abcdefg")) == "a, b, c, d, e, f, g"
    assert some(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"


@pytest.mark.parametrize(
    ("typed", "likely"),
    [
        ("torch=2.9", "gpuinstall install torch==2.9"),
        ("torch[opt]=2.9.*", "gpuinstall install torch[opt]==2.9.*"),
        ("pytorch>=2.9", "gpuinstall install 'torch>=2.9'"),
    ],
)
def test_a_requirement_in_conda_s_spelling_is_answered_with_the_right_one(typed: str, likely: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_requirement(typed)
    assert caught.value.hint == likely


@pytest.mark.parametrize(
    ("typed", "likely"),
    [
        ("trch", "gpuinstall install torch"),
        ("torchvison", "gpuinstall install torchvision"),
        ("flashattn", "gpuinstall install flash-attn"),
        ("quux", "Check the name"),
    ],
)
def test_a_package_that_is_not_found_is_answered_with_the_likely_name(typed: str, likely: str) -> None:
    error = explain_failure(f"No solution found: Because {typed} was not found in the package registry")
    assert getattr(error, "hint", None) == likely


def test_an_advice_that_fails_when_pasted_is_found() -> None:
    assert judged("gpuinstall install --nothing")
    assert judged("gpuinstall instal")
    assert judged("df -h; (")
    assert judged("gpuinstall sync   # again") is None
    assert judged("Check the name") is None


def test_every_advice_of_every_failure_is_prose_or_a_command() -> None:
    fixes = [failure.fix.commands for failure in load_failures().values()]
    lines = [line for commands in fixes for lines in commands.values() for line in lines]
    assert len(lines) > 400
    assert {
        line: fault
        for line in lines
        if (fault := judged(re.sub(r"\{\w+\}", "x", re.sub(r"\{(?:at|into)\}", "", line))))
    } == {}


def test_every_hint_that_is_written_in_the_source_is_prose_or_a_command() -> None:
    hints = [
        keyword.value.value
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "hint" and isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
    ]
    assert len(hints) > 50
    lines = [line for hint in hints for line in hint.splitlines()]
    assert {line: fault for line in lines if (fault := judged(line))} == {}
