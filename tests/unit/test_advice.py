"""What is advised can be pasted: commands are written out, and what was typed is in them."""

from __future__ import annotations

import ast
import re
from difflib import get_close_matches
from pathlib import Path

import pytest

from gpuinstall.advice import in_full
from gpuinstall.errors import UsageError
from gpuinstall.failures.table import load_failures
from gpuinstall.lock.package_names import LEAST_LIKENESS, known_names
from gpuinstall.lock.uv_failure import Conflict, explain_failure
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.text import some
from tests.lab.advice import judged

ROOT = Path(__file__).resolve().parents[2]
LINE = [
    "gpuinstall",
    "install",
    "torch>=2.9",
    "--offline",
    "--torch-index",
    "https://ann:secret@index.example/whl",
]


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
        (
            "the same again",
            "gpuinstall install 'torch>=2.9' --offline --torch-index https://index.example/whl",
        ),
        ("df -h\nthe same packages", "df -h\nthe same packages"),
    ],
)
def test_a_command_that_is_to_be_run_again_is_written_out_without_a_password(
    hint: str, command: str
) -> None:
    assert in_full(hint, LINE) == command


def test_a_change_of_the_command_keeps_the_rest_of_it() -> None:
    line = "gpuinstall install torch==9.9 Transfomers[torch]>=4 --backend cu130 --python=3.8 --index-strategy x"
    kept = "--python=3.8 --index-strategy x"
    rest = f"torch==9.9 'Transfomers[torch]>=4' --backend cu130 {kept}"
    changes = {
        "with --backend cpu": f"torch==9.9 'Transfomers[torch]>=4' {kept} --backend cpu",
        "with --python 3.12": "torch==9.9 'Transfomers[torch]>=4' --backend cu130 --index-strategy x --python 3.12",
        "with --yes": f"{rest} --yes",
        "with torchtriton": f"{rest} torchtriton",
        "without --python 3.8": "torch==9.9 'Transfomers[torch]>=4' --backend cu130 --index-strategy x",
        "without --backend cu130": f"torch==9.9 'Transfomers[torch]>=4' {kept}",
        "without transfomers": f"torch==9.9 --backend cu130 {kept}",
        "without torch==9.9": f"'Transfomers[torch]>=4' --backend cu130 {kept}",
        "with torch in place of torch ==9.9": f"torch 'Transfomers[torch]>=4' --backend cu130 {kept}",
        "with transformers in place of transfomers": f"torch==9.9 'transformers[torch]>=4' --backend cu130 {kept}",
    }
    written = {change: in_full(f"the same {change}", line.split()) for change in changes}
    expected = {change: f"gpuinstall install {words}" for change, words in changes.items()}
    assert {change: words for change, words in written.items() if words != expected[change]} == {}


def test_a_change_that_the_command_does_not_hold_is_a_sentence() -> None:
    lines = {
        "the same without torch==9.9   # torch 2.15.0": "Without torch==9.9: torch 2.15.0",
        "the same with transformers in place of transfomers": "Write transformers in place of transfomers",
        "the same without --offline": "Without --offline",
    }
    assert {line: in_full(line, ["gpuinstall", "install"]) for line in lines} == lines


def test_an_option_is_put_where_the_command_reads_it_and_left_out_where_it_has_none() -> None:
    run = ["gpuinstall", "run", "--any", "train.py", "--lr", "1"]
    assert in_full("the same with --wait 9", run) == "gpuinstall run --wait 9 --any train.py --lr 1"
    assert (
        in_full("the same with --yes", ["gpuinstall", "install", "--", "a"])
        == "gpuinstall install --yes -- a"
    )
    assert (
        in_full("sudo reboot\nthe same with --backend cpu", run, {"--any", "--wait"})
        == "sudo reboot"
    )
    assert (
        in_full("the same with --backend cpu\nsudo reboot", run, {"--any", "--wait"})
        == "sudo reboot"
    )
    assert (
        in_full("the same with --any --backend cpu\nsudo reboot", run, {"--any", "--wait"})
        == "sudo reboot"
    )


def test_a_package_is_added_as_the_command_takes_it() -> None:
    hint = "the same with torchtriton   # from the default index"
    cases = {
        "install torch": (
            "requirements",
            "gpuinstall install torch torchtriton   # from the default index",
        ),
        "run --with six a.py": (
            "--with",
            "gpuinstall run --with torchtriton --with six a.py   # from the default index",
        ),
        "sync": ("--wait", "Request torchtriton too: from the default index"),
    }
    written = {
        line: in_full(hint, ["gpuinstall", *line.split()], {option})
        for line, (option, _) in cases.items()
    }
    assert written == {line: expected for line, (_, expected) in cases.items()}


def test_several_packages_are_added_each_as_one_word() -> None:
    hint = "the same with 'nvcc==13.0.*' 'crt==13.0.*'"
    cases = {
        "lock torch": ("requirements", "gpuinstall lock torch 'nvcc==13.0.*' 'crt==13.0.*'"),
        "run a.py": ("--with", "gpuinstall run --with 'nvcc==13.0.*' --with 'crt==13.0.*' a.py"),
        "sync": ("--wait", "Request 'nvcc==13.0.*' 'crt==13.0.*' too"),
    }
    written = {
        line: in_full(hint, ["gpuinstall", *line.split()], {option})
        for line, (option, _) in cases.items()
    }
    assert written == {line: expected for line, (_, expected) in cases.items()}


def test_names_beyond_six_are_a_number() -> None:
    assert some(["numpy", "pandas"]) == "numpy, pandas"
    assert some(list("abcdefg")) == "a, b, c, d, e, f, g"
    assert some(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"


@pytest.mark.parametrize(
    ("typed", "likely"),
    [
        ("torch=2.9", "gpuinstall lock torch==2.9 --os linux"),
        ("torch[opt]=2.9.*", "gpuinstall lock 'torch[opt]==2.9.*' --os linux"),
        ("pytorch >=2.9", "gpuinstall lock 'torch>=2.9' --os linux"),
    ],
)
def test_a_requirement_in_conda_s_spelling_is_answered_with_the_right_one(
    typed: str, likely: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse_requirement(typed)
    line = ["gpuinstall", "lock", typed, "--os", "linux"]
    assert in_full(caught.value.hint or "", line) == likely


class Index:
    """An index that has every package, in version 2.5."""

    def newest(self, package: str) -> str | None:  # noqa: ARG002
        return "2.5"

    def likely(self, mistyped: str) -> str | None:
        return next(
            iter(get_close_matches(mistyped, known_names() - {mistyped}, 1, LEAST_LIKENESS)), None
        )


def test_a_package_that_is_not_found_is_answered_with_the_likely_name() -> None:
    names = {
        "trch": "torch",
        "torchvison": "torchvision",
        "flashattn": "flash-attn",
        "transfomers": "transformers",
        "rich": None,
        "quux": None,
    }
    message = "No solution found: Because {} was not found in the package registry"
    errors = {name: explain_failure(message.format(name), (), Index()) for name in names}
    hints = {name: getattr(error, "hint", None) for name, error in errors.items()}
    assert hints == {
        name: f"the same with {likely} in place of {name}" if likely else "Check the name"
        for name, likely in names.items()
    }
    assert getattr(explain_failure(message.format("trch")), "hint", None) == "Check the name", (
        "nobody was asked"
    )


def test_a_version_that_is_not_there_is_answered_with_the_newest() -> None:
    message = "No solution found\n  cause: Because {} is {}, we can conclude that your requirements are unsatisfiable."
    exact = message.format("there", "no version of numpy==99.0 and you require numpy==99.0")
    bounded = message.format("only numpy<=2.5", "available and you require numpy>=99")
    said = []
    for text in (exact, bounded):
        found = explain_failure(text, (), Index())
        assert isinstance(found, Conflict)
        said.append((found.error.message, found.error.hint))
    assert said == [
        (
            "numpy 99.0 does not exist; the newest is 2.5",
            "the same with numpy in place of numpy==99.0",
        ),
        ("there is no numpy>=99; the newest is 2.5", "the same with numpy in place of numpy>=99"),
    ]


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
        if keyword.arg == "hint"
        and isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, str)
    ]
    assert len(hints) > 50
    lines = [line for hint in hints for line in hint.splitlines()]
    assert {line: fault for line in lines if (fault := judged(line))} == {}
