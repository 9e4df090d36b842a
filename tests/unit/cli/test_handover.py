"""What bootstrap.py is given: commands are passed on, and none is taken for a package."""

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.main import handed_over


@pytest.mark.parametrize(
    "line",
    [
        ["doctor"],
        ["lock", "check"],
        ["help", "lock"],
        ["-V"],
        ["--help"],
        ["install", "doctor"],
    ],
)
def test_a_command_is_passed_on(line):
    assert handed_over(line) == line


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["torch"],
        ["vllm", "peft"],
        ["doctor==1"],
        ["doctr==1"],
        ["reportlab"],
        ["./doctr"],
        ["torch", "--help"],
        ["--nope"],
    ],
)
def test_everything_else_is_for_install(line):
    assert handed_over(line) == ["install", *line]


@pytest.mark.parametrize(
    ("word", "command"),
    [("verfy", "verify"), ("plann", "plan"), ("lokc", "lock"), ("Intsall", "install")],
)
def test_a_command_that_is_mistyped_is_never_a_package(word, command):
    with pytest.raises(UsageError, match="no package") as raised:
        handed_over([word, "six"])
    first, second = str(raised.value.hint).splitlines()
    assert f"gpuinstall {command} six " in first
    assert f"gpuinstall install {word} six " in second


@pytest.mark.parametrize(
    "line",
    [["-q", "doctor"], ["torch", "verify"], ["Doctor"], ["--venv", "env", "lock"]],
)
def test_a_command_in_the_wrong_place_is_never_a_package(line):
    with pytest.raises(UsageError, match="no package") as raised:
        handed_over(line)
    assert raised.value.exit_code == 2
    assert f"gpuinstall install {' '.join(line)}" in str(raised.value.hint)
