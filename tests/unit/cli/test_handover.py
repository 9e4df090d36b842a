"""What bootstrap.py is given: commands are passed on, and none is taken for a package."""

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.main import bootstrap_command


@pytest.mark.parametrize(
    "line",
    ["doctor", "lock check", "help lock", "-V", "--help", "install doctor"],
)
def test_a_command_is_passed_on(line):
    assert bootstrap_command(line.split()) == line.split()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "torch",
        "vllm peft",
        "doctor==1",
        "doctr==1",
        "reportlab",
        "./doctr",
        "torch --help",
        "--nope",
    ],
)
def test_everything_else_is_for_install(line):
    assert bootstrap_command(line.split()) == ["install", *line.split()]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("verfy six", "verify six"),
        ("plann six", "plan six"),
        ("lokc six", "lock six"),
        ("Intsall six", "install six"),
        ("-q doctor", "doctor -q"),
        ("torch verify", "verify torch"),
        ("Doctor", "doctor"),
        ("--venv env lock", "env --venv lock"),
    ],
)
def test_a_command_that_is_mistyped_or_misplaced_is_never_a_package(line, command):
    with pytest.raises(UsageError, match="no package") as raised:
        bootstrap_command(line.split())
    first, second = str(raised.value.hint).splitlines()
    assert f"gpuinstall {command} " in first
    assert f"gpuinstall install {line} " in second
